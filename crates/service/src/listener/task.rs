//! The task that serves a connection, as the places of its port see it: when bytes last went over
//! the connection, and how the task is told to close the connection.
//!
//! The server keeps its tasks to itself. So a task that waits for bytes is woken, and finds that its
//! stream fails. A task that waits for the answer to a request may neither read nor write. The
//! handle that the server gives with each request ends such a task.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use axum_server::ConnectionShutdown;
use http::Request;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::no_place;

/// The task of one connection.
#[derive(Debug, Default)]
pub struct ConnectionTask(Mutex<TaskState>);

#[derive(Debug)]
struct TaskState {
    /// The time of the last bytes. Before any, the time at which the connection was accepted.
    used: Instant,
    /// True once the connection must be closed.
    is_closed: bool,
    /// Wakes the task. None: the task hasn't read or written yet.
    waker: Option<Waker>,
    /// Ends the task. None: no request has come yet.
    shutdown: Option<ConnectionShutdown>,
}

impl Default for TaskState {
    fn default() -> Self {
        Self { used: Instant::now(), is_closed: false, waker: None, shutdown: None }
    }
}

impl ConnectionTask {
    /// Returns the time of the last bytes, or of the connection's acceptance.
    pub fn used_at(&self) -> Instant {
        self.0.lock().used
    }

    /// Reads or writes by `poll`, and notes the time if that succeeds.
    ///
    /// # Errors
    /// If the connection must be closed, or those of `poll`.
    pub fn transfer<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.check(cx)?;
        let polled = poll(cx);
        if matches!(polled, Poll::Ready(Ok(_))) {
            self.0.lock().used = Instant::now();
        }
        polled
    }

    /// Arranges that the caller's task is woken once the connection must be closed.
    ///
    /// # Errors
    /// If the connection must be closed already.
    pub fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(no_place());
        }
        state.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        Ok(())
    }

    /// Closes the connection: its reads and writes fail from now on, and a request under way ends
    /// without an answer.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let (waker, shutdown) = (state.waker.take(), state.shutdown.take());
        drop(state);
        if let Some(shutdown) = shutdown {
            shutdown.shutdown();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes the handle by which the server ends the task.
    fn ends_by(&self, shutdown: &ConnectionShutdown) {
        let mut state = self.0.lock();
        if state.is_closed {
            drop(state);
            shutdown.shutdown();
        } else if state.shutdown.is_none() {
            state.shutdown = Some(shutdown.clone());
        }
    }
}

/// The service of one connection, which a [`ConnectionTask`] can close also while the service
/// answers a request.
#[derive(Clone, Debug)]
pub struct Closable<S> {
    service: S,
    task: Arc<ConnectionTask>,
}

impl<S> Closable<S> {
    /// Wraps the service of the connection that this task serves.
    pub fn new(service: S, task: &Arc<ConnectionTask>) -> Self {
        Self { service, task: Arc::clone(task) }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Closable<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(shutdown) = request.extensions().get::<ConnectionShutdown>() {
            self.task.ends_by(shutdown);
        }
        self.service.call(request)
    }
}

//! The address of a port that a program serves: `--listen` of the webhook, and `--admin-listen` of
//! both servers. Parsing looks up nothing; names are resolved when the port is bound.

use std::{
    fmt::{self, Display, Formatter},
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    str::FromStr,
};

use anyhow::{Context, ensure};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::lookup_host;

/// The most connections that wait to be accepted: when the authority changes, API servers open one
/// for each call under way.
const BACKLOG: i32 = 4096;

/// The address to listen on, in Go's format: `host:port`, with an IPv6 address in brackets. An
/// empty host stands for all interfaces, and port 0 for any free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The host, without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

impl ListenAddress {
    /// Listens, on a socket that doesn't block. A name is resolved to one of its addresses,
    /// preferably IPv4, as Go does.
    ///
    /// # Errors
    /// If the name has no address, or the port is in use or not permitted.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        let Self { host, port } = self;
        if host.is_empty() {
            return on_all_interfaces(*port, listen);
        }
        let addresses = lookup_host((host.as_str(), *port)).await?;
        let address = addresses.min_by_key(SocketAddr::is_ipv6);
        listen(address.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))?)
    }
}

impl FromStr for ListenAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        let (host, port) = parts.context("no port: must be `host:port`, or `:port` for all interfaces")?;
        Ok(Self { host: parse_host(host)?.into(), port: parse_port(port)? })
    }
}

/// Parses an address, a name, or nothing. An IPv6 address must have brackets, and loses them.
fn parse_host(host: &str) -> anyhow::Result<&str> {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let parsed = address.parse::<Ipv6Addr>();
        return parsed.map(|_| address).context("must be an IPv6 address between the brackets");
    }
    ensure!(!host.contains(':'), "an IPv6 address must be in brackets, as in `[::1]:8080`");
    let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    ensure!(is_name, "`{host}` is neither an address nor a name");
    Ok(host)
}

/// Parses a decimal port from 0 to 65535.
fn parse_port(port: &str) -> anyhow::Result<u16> {
    // to Rust, a number may have a plus
    let digits = port.chars().all(|c| c.is_ascii_digit()).then_some(port);
    let number = digits.and_then(|digits| digits.parse().ok());
    number.with_context(|| format!("`{port}` must be a port's number, from 0 to 65535"))
}

impl Display for ListenAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Listens for IPv6 and IPv4 alike, or for IPv4 alone where IPv6 is missing.
fn on_all_interfaces<L>(port: u16, listen: impl Fn(SocketAddr) -> io::Result<L>) -> io::Result<L> {
    match listen((Ipv6Addr::UNSPECIFIED, port).into()) {
        // a port that is in use or forbidden must not be served for IPv4 alone
        Err(error) if !matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
            listen((Ipv4Addr::UNSPECIFIED, port).into())
        }
        result => result,
    }
}

/// Opens a listening socket at one address.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // some kernels are set to listen for IPv6 alone
        socket.set_only_v6(false)?;
    }
    // without this, a restart would wait for the connections of the process before
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::try_join_all;
    use tokio::{net::TcpStream, time::timeout};

    use super::*;

    fn address(text: &str) -> ListenAddress {
        text.parse().unwrap()
    }

    #[test]
    fn forms_of_go_are_understood() {
        for (text, host, port) in [
            (":8080", "", 8080),
            (":0", "", 0),
            ("0.0.0.0:8080", "0.0.0.0", 8080),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("localhost:65535", "localhost", 65535),
            ("keeper-0.keeper.t9k_system:8080", "keeper-0.keeper.t9k_system", 8080),
            ("[::1]:8080", "::1", 8080),
            ("[::]:8080", "::", 8080),
        ] {
            assert_eq!(address(text), ListenAddress { host: host.into(), port }, "{text}");
            assert_eq!(address(text).to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, complaint) in [
            ("", "no port"),
            ("8080", "no port"),
            ("localhost", "no port"),
            ("[::1]", "no port"),
            (":", "`` must be a port's number"),
            (":http", "`http` must be a port's number"),
            (":+80", "`+80` must be a port's number"),
            (":-1", "`-1` must be a port's number"),
            (":99999", "`99999` must be a port's number, from 0 to 65535"),
            ("::1:8080", "in brackets"),
            ("[::1:8080", "in brackets"),
            ("http://localhost:8080", "in brackets"),
            ("[localhost]:8080", "IPv6 address between the brackets"),
            ("local host:8080", "`local host` is neither"),
            ("*:8080", "`*` is neither"),
        ] {
            let refusal = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(refusal.contains(complaint), "{text}: {refusal}");
        }
    }

    #[tokio::test]
    async fn an_empty_host_listens_on_all_interfaces() {
        let listener = address(":0").bind().await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_name_listens_on_its_ipv4_address() {
        let listener = address("localhost:0").bind().await.unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    }

    #[tokio::test]
    async fn a_thousand_clients_connect_before_one_is_accepted() {
        let listener = address("127.0.0.1:0").bind().await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = try_join_all((0..1_000).map(|_| TcpStream::connect(address)));
        let connected = timeout(Duration::from_secs(30), connections).await.expect("no room to wait in");
        assert_eq!(connected.unwrap().len(), 1_000);
    }

    #[test]
    fn without_ipv6_all_interfaces_are_those_of_ipv4() {
        let listen = |address: SocketAddr| match address {
            SocketAddr::V6(_) => Err(ErrorKind::Unsupported.into()),
            SocketAddr::V4(_) => Ok(address.to_string()),
        };
        assert_eq!(on_all_interfaces(80, listen).unwrap(), "0.0.0.0:80");
    }

    #[test]
    fn a_port_in_use_is_not_had_by_half() {
        let listen = |address: SocketAddr| match address {
            SocketAddr::V6(_) => Err(ErrorKind::AddrInUse.into()),
            SocketAddr::V4(_) => Ok(()),
        };
        assert_eq!(on_all_interfaces(80, listen).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}

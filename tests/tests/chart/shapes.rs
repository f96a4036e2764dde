//! The objects of each shape of a release, which the API server must accept.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::{CHART, assert_accepted, kinds, parse, shared, template};

#[tokio::test]
async fn chart_lints_strictly() {
    let lint = shared().await.helm(&["lint", "--strict", CHART]).await;
    lint.unwrap().success().unwrap();
}

/// A combination of the values on which the set of objects depends.
#[derive(Debug)]
struct Shape {
    mode: &'static str,
    in_cluster: bool,
    keepers: u8,
    webhooks: u8,
    crds: bool,
}

impl Shape {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mode in ["selfManaged", "certManager", "existingSecret"] {
            // a bit for each of the others
            all.extend((0..16_u8).map(|bits| Self {
                mode,
                in_cluster: bits & 1 > 0,
                keepers: bits & 2,
                webhooks: 1 + ((bits >> 2) & 1),
                crds: bits & 8 > 0,
            }));
        }
        all
    }

    /// The CA is a PEM, which the API server reads.
    fn values(&self, ca: &str) -> Value {
        json!({
            "webhook": {
                "url": if self.in_cluster { "" } else { "https://webhook.example.com:9443" },
                "replicas": self.webhooks,
                "certificate": {
                    "mode": self.mode,
                    "existingSecret": {"name": "mine", "caBundle": ca},
                },
            },
            "keeper": {"replicas": self.keepers},
            "crds": {
                "runai": self.crds, "tensorstack": self.crds,
                "serveV2": if self.crds && self.webhooks > 1 { json!(true) } else { json!("auto") },
            },
        })
    }

    fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let own = usize::from(self.mode == "selfManaged");
        let always = ["ServiceAccount", "ClusterRoleBinding"].map(|kind| (kind, 2));
        let rest = [
            // of the programs, for the roles view and edit, and of those who extend and approve
            ("ClusterRole", 6),
            ("ValidatingWebhookConfiguration", 2),
            ("MutatingWebhookConfiguration", 1),
            ("ValidatingAdmissionPolicy", 9),
            ("ValidatingAdmissionPolicyBinding", 9),
            ("ConfigMap", 1 + own),
            ("FlowSchema", 2),
            ("Lease", own),
            ("Role", 1 + own),
            ("RoleBinding", 1 + own),
            ("Deployment", 1 + usize::from(self.in_cluster)),
            ("Service", usize::from(self.in_cluster)),
            (
                "PodDisruptionBudget",
                usize::from(self.in_cluster && self.webhooks > 1) + usize::from(self.keepers > 1),
            ),
            ("Secret", own),
            ("Issuer", if self.mode == "certManager" { 2 } else { 0 }),
            ("Certificate", if self.mode == "certManager" { 2 } else { 0 }),
            ("CustomResourceDefinition", if self.crds { 3 } else { 1 }),
        ];
        always.into_iter().chain(rest).filter(|(_, count)| *count > 0).collect()
    }
}

#[tokio::test]
async fn every_shape_renders_what_it_needs_and_the_api_server_accepts_it() {
    let cluster = shared().await;
    let ca = &cluster.authority().certificate_pem();
    let rendered = stream::iter(Shape::all()).map(async |shape| {
        let output = template("test", &shape.values(ca), &[]).await;
        let documents = output.success()?;
        assert_eq!(kinds(&parse(&documents)), shape.kinds(), "{shape:?}");
        Ok::<_, anyhow::Error>(documents)
    });
    let rendered: Vec<_> = rendered.buffer_unordered(4).try_collect().await.unwrap();
    assert_accepted(&rendered.join("\n---\n")).await;
}

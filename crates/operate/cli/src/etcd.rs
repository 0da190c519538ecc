//! A node for etcd v3 clients (feature `etcd`). Without the feature, the program refuses data
//! folders of the etcd service.

/// The operator's settings for the etcd service.
#[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "there is no such service"))]
pub(crate) struct EtcdSettings<'c> {
    /// Limit on the total data size in bytes. 0 means unlimited.
    pub(crate) quota_bytes: u64,
    /// History that is kept.
    pub(crate) auto_compaction: &'c str,
    /// Type of the tokens issued to clients at login.
    pub(crate) auth_token: &'c str,
}

#[cfg(feature = "etcd")]
pub(crate) use with::{ItemValidator, item_revision, open, raise_revision, run};
#[cfg(not(feature = "etcd"))]
pub(crate) use without::{ItemValidator, item_revision, open, raise_revision, refused, run};

#[cfg(feature = "etcd")]
mod with {
    use std::{path::Path, sync::Arc};

    use quorate::Protection;
    pub(crate) use quorate_etcd::image::{ItemValidator, item_revision, raise_revision};
    use quorate_etcd::{
        front::{Listener, Settings, TokenKind},
        service::Service,
        store::{lsm::LsmStore, memory::MemoryStore},
    };
    use quorate_node::Home as _;

    use super::EtcdSettings;
    use crate::{
        config::Store,
        output::{Exit, Problem},
        starting::StartingNode,
        stores::open_engine,
    };

    /// Opens the etcd service stored in a node's folder.
    pub(crate) fn open(folder: &Path, store: Store, files_max: usize) -> Result<Service, Problem> {
        Ok(match store {
            Store::EtcdLsm => {
                let engine = open_engine(&folder.join("etcd"), files_max)?;
                Service::new(Box::new(LsmStore::new(engine)))
            }
            _ => Service::new(Box::new(MemoryStore::new())),
        })
    }

    /// Runs the node until it is stopped.
    pub(crate) fn run(
        mut node: StartingNode,
        store: Store,
        has_socket: bool,
        wanted: EtcdSettings<'_>,
    ) -> Result<Exit, Problem> {
        if has_socket {
            // The listener would be bound but never served.
            let what = "--client-socket has no effect with --service etcd";
            return Err(Problem::usage_error(what).with_hint("clients of etcd connect to --client"));
        }
        let tokens = TokenKind::parse_flag(wanted.auth_token).map_err(|bad| {
            Problem::usage_error(format_args!("--etcd-auth-token: {bad}"))
                .with_hint("docs/etcd.md describes both kinds under 'Users, roles and passwords'")
        })?;
        let retention = wanted
            .auto_compaction
            .parse()
            .map_err(|bad| Problem::usage_error(format_args!("--etcd-auto-compaction: {bad}")))?;
        let failed = |error| Problem::io_error("serve clients of etcd", &error);
        let listener = node.listeners.take_client();
        let listener = listener.ok_or_else(|| Problem::usage_error("--client is missing"))?;
        let protection: Protection = node.settings.protection.clone();
        let door = Listener::from_listener(listener, protection).map_err(failed)?;
        let founding = node.identity.founding();
        let settings = Settings {
            cluster_id: founding.cluster,
            node_id: founding.node,
            connections_max: node.settings.descriptors.clients_max,
            memory_bytes: node.settings.client_memory_bytes,
            quota_bytes: wanted.quota_bytes,
            retention,
            token_kind: tokens,
        };
        let (local, front) = quorate::local_channel()?;
        let wake = Arc::clone(front.wake());
        let files = node.report_opening_store();
        let service = open(node.identity.home().path(), store, files)?;
        let admin = node.admin.clone();
        node.run(service, front, Some(wake), |handle| {
            let server = door.serve(local, handle, settings).map_err(failed)?;
            let operators = server.operators();
            admin.set_client_users(Box::new(move |certified, login| {
                let operators = operators.clone();
                Box::pin(async move {
                    let answer = operators.has_root(certified, login).await;
                    answer.map_err(|status| status.message().to_owned())
                })
            }));
            Ok(server)
        })
    }
}

#[cfg(not(feature = "etcd"))]
mod without {
    use std::path::Path;

    use quorate::LoadError;
    use quorate_node::log_service::NoState;

    use super::EtcdSettings;
    use crate::{
        config::Store,
        output::{Exit, Problem},
        starting::StartingNode,
    };

    pub(crate) fn refused() -> Problem {
        let what = "this binary was built without --service etcd";
        Problem::new(Exit::Usage, "unsupported", what).with_hint("build it with the feature etcd")
    }

    pub(crate) fn run(
        _: StartingNode,
        _: Store,
        _: bool,
        _: EtcdSettings<'_>,
    ) -> Result<Exit, Problem> {
        Err(refused())
    }

    pub(crate) fn open(_: &Path, _: Store, _: usize) -> Result<NoState, Problem> {
        Err(refused())
    }

    pub(crate) fn item_revision(_: &[u8]) -> Option<i64> {
        None
    }

    pub(crate) fn raise_revision(_: &[u8], _: u64) -> Option<Vec<u8>> {
        None
    }

    /// A placeholder that refuses snapshot items, because this binary cannot validate them.
    #[derive(Default)]
    pub(crate) struct ItemValidator;

    impl ItemValidator {
        pub(crate) fn validate_item(&mut self, _: &[u8]) -> Result<(), LoadError> {
            Err(LoadError::Unsupported)
        }

        pub(crate) fn check_complete(&self) -> Result<(), LoadError> {
            Err(LoadError::Unsupported)
        }
    }
}

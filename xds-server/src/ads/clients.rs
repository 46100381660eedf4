//! Who is connected, and how far each has come: the table behind `/v1/clients`.
//!
//! In: a handle per stream. Out: a copy of the rows. A row lives as long as its stream's handle.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use vitals_prober::clock;

use crate::model::Name;
use crate::snapshot::{FleetSnapshot, ResourceType};
use crate::stream::{SubscriptionStatus, Transport};

/// One connected stream.
#[derive(Clone, Debug)]
pub struct Client {
    /// `node.id`; empty until the first request.
    pub node_id: String,
    /// `node.cluster`
    pub node_cluster: String,
    /// The fleet that it is served as.
    pub fleet: Option<Name>,
    /// How it is served.
    pub transport: Transport,
    /// The one type that its service is of; `None` on ADS.
    pub only: Option<ResourceType>,
    /// When the stream opened.
    pub connected_at: SystemTime,
    /// Name and version of the client.
    pub user_agent: String,
    /// Where its connection comes from.
    pub peer: Option<SocketAddr>,
    /// Where each subscribed type stands, in the types' order. They are few, and rows are many.
    pub types: Vec<(ResourceType, SubscriptionStatus)>,
    /// The state of its fleet ([`FleetSnapshot::state`]) of which it was last sent everything that it wants.
    pub caught_up: Option<u128>,
}

impl Client {
    /// Where a type stands; `None`: it is not subscribed.
    #[must_use]
    pub fn of_type(&self, kind: ResourceType) -> Option<&SubscriptionStatus> {
        let mut types = self.types.iter();
        types.find_map(|(of, status)| (*of == kind).then_some(status))
    }

    /// Whether it has taken all that its fleet is served now: everything was sent, every response was answered, and none
    /// was refused. While a resource is held, nobody has.
    #[must_use]
    pub fn has_acked(&self, fleet: &FleetSnapshot) -> bool {
        fleet.is_whole()
            && self.fleet.as_ref() == Some(fleet.name())
            && self.caught_up == Some(fleet.state())
            && self
                .types
                .iter()
                .all(|(_, of_type)| of_type.unanswered == 0 && of_type.nack.is_none())
    }
}

/// All connected streams.
#[derive(Debug, Default)]
pub struct Clients {
    next_id: AtomicU64,
    // Std mutexes: held for moments, never over an await, and that of a row inside that of all or alone.
    rows: Mutex<BTreeMap<u64, Arc<Mutex<Client>>>>,
}

impl Clients {
    /// Adds a stream that has said nothing yet.
    #[must_use]
    pub fn connect(
        self: &Arc<Self>,
        transport: Transport,
        only: Option<ResourceType>,
        peer: Option<SocketAddr>,
    ) -> ClientHandle {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let client = Client {
            node_id: String::new(),
            node_cluster: String::new(),
            fleet: None,
            transport,
            only,
            connected_at: clock::wall(),
            user_agent: String::new(),
            peer,
            types: Vec::new(),
            caught_up: None,
        };
        let row = Arc::new(Mutex::new(client));
        self.with(|rows| rows.insert(id, Arc::clone(&row)));
        ClientHandle {
            id,
            row,
            clients: Arc::clone(self),
        }
    }

    /// The streams that have said who they are, in the order of connecting.
    #[must_use]
    pub fn list(&self) -> Vec<Client> {
        let rows: Vec<_> = self.with(|rows| rows.values().map(Arc::clone).collect());
        rows.iter()
            .map(|row| lock(row).clone())
            .filter(|client| client.fleet.is_some())
            .collect()
    }

    /// Whether all connected clients of a fleet have answered this version of a type, or do not want the type.
    #[must_use]
    pub fn have_taken(&self, fleet: &Name, kind: ResourceType, version: &str) -> bool {
        let has = |status: &SubscriptionStatus| {
            let refused = status.nack.as_ref().map(|nack| &nack.version);
            let answered = status.acked_version.iter().chain(refused);
            answered.into_iter().any(|answered| **answered == *version)
        };
        self.with(|rows| {
            rows.values().map(|row| lock(row)).all(|client| {
                client.fleet.as_ref() != Some(fleet) || client.of_type(kind).is_none_or(has)
            })
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, Arc<Mutex<Client>>>) -> T) -> T {
        work(&mut lock(&self.rows))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream's own row; dropping it takes the row out.
#[derive(Debug)]
pub struct ClientHandle {
    id: u64,
    row: Arc<Mutex<Client>>,
    clients: Arc<Clients>,
}

impl ClientHandle {
    /// The stream's number in this process, for the log.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Notes who it is.
    pub fn set_node(&self, id: &str, cluster: &str, fleet: &Name, user_agent: String) {
        self.change(|client| {
            client.node_id = id.into();
            client.node_cluster = cluster.into();
            client.fleet = Some(fleet.clone());
            client.user_agent = user_agent;
        });
    }

    /// Notes the fleet that it is served as now; a reload may change it.
    pub fn set_fleet(&self, fleet: &Name) {
        self.change(|client| {
            if client.fleet.as_ref() != Some(fleet) {
                client.fleet = Some(fleet.clone());
            }
        });
    }

    /// Notes how far it has come with a type.
    pub fn set_type(&self, kind: ResourceType, status: SubscriptionStatus) {
        self.change(
            |client| match client.types.binary_search_by_key(&kind, |(of, _)| *of) {
                Ok(at) => {
                    if let Some(row) = client.types.get_mut(at) {
                        row.1 = status;
                    }
                }
                Err(at) => {
                    client.types.reserve_exact(1);
                    client.types.insert(at, (kind, status));
                }
            },
        );
    }

    /// Notes that it was sent everything that it wants of a state of its fleet.
    pub fn set_caught_up(&self, fleet: &FleetSnapshot) {
        self.change(|client| client.caught_up = Some(fleet.state()));
    }

    fn change<T>(&self, work: impl FnOnce(&mut Client) -> T) {
        work(&mut lock(&self.row));
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.clients.with(|rows| drop(rows.remove(&self.id)));
    }
}

//! Transport over a NATS server, which carries frames and keeps nothing: leases, repetition and the
//! one answer to each wish are the tuner's. A server that lost everything costs time and no data.
//!
//! | subject | messages |
//! |---|---|
//! | `autotune.TEAM.find` | a tuner asks for workers; each replies with its id |
//! | `autotune.TEAM.collector.find` | a tuner or a follower asks whether there is a collector, whose id is `collector` |
//! | `autotune.TEAM.dial.ID` | a tuner asks a worker or collector for a connection; both exchange their subjects |
//! | `autotune.TEAM.wire.*` | one direction of a connection: a kind byte, and the content of a frame |

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Message, RequestErrorKind, Subscriber};
use futures_util::StreamExt;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::FleetError;
use crate::params::{MAX_FRAME_BYTES, MAX_UNREAD};
use crate::random::random_word;
use crate::transport::{Arrival, Dial, FrameReceiver, FrameSender, Listen, Wire};

/// Time limit of connecting to the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// Time that workers have to reply to the question who is there.
const FIND_LIMIT: Duration = Duration::from_millis(700);

/// Time limit of handing a message to the client, which waits while the server is away.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// Time limit of passing on the last messages.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// First byte of a message on a connection.
const FRAME: u8 = 0;
const END: u8 = 1;

/// Server, team and credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsOptions {
    /// URL such as `nats://10.0.0.1:4222`, or `tls://..`.
    pub url: String,
    /// Name of the team: workers and tuners of one team find each other.
    pub team: String,
    /// File with credentials, as NATS tools write it.
    pub credentials: Option<PathBuf>,
    /// File with the seed of an NKey.
    pub nkey: Option<PathBuf>,
    /// File with certificates of authorities, besides those of the system.
    pub authorities: Option<PathBuf>,
    /// Files with the certificate and the key that the client shows to the server.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl NatsOptions {
    /// Returns the files for TLS.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let own = self.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.authorities.iter().chain(own)
    }
}

/// Subjects by which peers are found.
const WORKERS: &str = "find";
const COLLECTOR_FIND: &str = "collector.find";

/// Id of a team's collector. It stays the same when the collector is started again.
const COLLECTOR: &str = "collector";

/// Connection with a NATS server.
pub struct NatsServer {
    runtime: Runtime,
    client: Client,
    options: NatsOptions,
}

impl NatsServer {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`FleetError::Server`] if it cannot be reached, or refuses the credentials.
    pub fn connect(options: &NatsOptions) -> Result<Arc<Self>, FleetError> {
        let failed = |cause: String| FleetError::Server { url: options.url.clone(), cause };
        if options.team.is_empty() || !options.team.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Err(failed(format!("team '{}' is not a word of letters, digits, - and _", options.team)));
        }
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("nats").enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;

        let client = runtime.block_on(async {
            let mut connect = ConnectOptions::new().name("autotune").connection_timeout(CONNECT_LIMIT);
            if let Some(path) = &options.credentials {
                let read = connect.credentials_file(path).await;
                connect = read.map_err(|error| failed(format!("{}: {error}", path.display())))?;
            }
            if let Some(path) = &options.nkey {
                let seed = std::fs::read_to_string(path);
                let seed = seed.map_err(|error| failed(format!("{}: {error}", path.display())))?;
                connect = connect.nkey(seed.trim().to_string());
            }
            for path in options.files() {
                // The client would name no file.
                std::fs::metadata(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            }
            if let Some(path) = &options.authorities {
                connect = connect.add_root_certificates(path.clone());
            }
            if let Some((certificate, key)) = &options.certificate {
                connect = connect.add_client_certificate(certificate.clone(), key.clone());
            }
            match timeout(CONNECT_LIMIT, connect.connect(&options.url)).await {
                Ok(Ok(client)) => Ok(client),
                Ok(Err(error)) => Err(failed(error.to_string())),
                Err(_) => Err(failed("it does not answer".into())),
            }
        })?;
        if client.max_payload() <= MAX_FRAME_BYTES {
            return Err(failed(format!("its max_payload is {}, not 1 MiB", client.max_payload())));
        }
        Ok(Arc::new(Self { runtime, client, options: options.clone() }))
    }

    fn subject(&self, kind: &str) -> String {
        format!("autotune.{}.{kind}", self.options.team)
    }

    fn error(&self, cause: impl ToString) -> FleetError {
        FleetError::Server { url: self.options.url.clone(), cause: cause.to_string() }
    }

    /// Offers a worker to the team.
    ///
    /// # Errors
    /// If the server does not permit it.
    pub fn listen(self: &Arc<Self>) -> Result<Box<dyn Listen>, FleetError> {
        self.listen_at(WORKERS, random_word())
    }

    /// Offers a collector to the team.
    ///
    /// # Errors
    /// If the server does not permit it.
    pub fn listen_as_collector(self: &Arc<Self>) -> Result<Box<dyn Listen>, FleetError> {
        self.listen_at(COLLECTOR_FIND, COLLECTOR.into())
    }

    fn listen_at(self: &Arc<Self>, find: &str, id: String) -> Result<Box<dyn Listen>, FleetError> {
        let (sender, wires) = mpsc::channel();
        let (find, dial) = (self.subject(find), self.subject(&format!("dial.{id}")));
        let subscribed = self.runtime.block_on(async {
            let both = (self.client.subscribe(find).await, self.client.subscribe(dial).await);
            self.client.flush().await.ok();
            both
        });
        let (finds, dials) = match subscribed {
            (Ok(finds), Ok(dials)) => (finds, dials),
            (Err(error), _) | (_, Err(error)) => return Err(self.error(error)),
        };
        let server = Arc::clone(self);
        let tasks = vec![
            self.runtime.spawn(tell_id(self.client.clone(), finds, id.clone())),
            self.runtime.spawn(accept_all(self.client.clone(), dials, self.subject("wire."), sender)),
        ];
        Ok(Box::new(NatsListener { server, id, wires, tasks }))
    }

    /// Asks who is there. Returns the workers of the team.
    ///
    /// # Errors
    /// [`FleetError::Server`] if the server does not permit it.
    pub fn find(self: &Arc<Self>) -> Result<Vec<Arc<dyn Dial>>, FleetError> {
        let mut ids = self.runtime.block_on(async {
            let inbox = self.client.new_inbox();
            let mut replies = self.client.subscribe(inbox.clone()).await.map_err(|error| self.error(error))?;
            let asked = self.client.publish_with_reply(self.subject(WORKERS), inbox, "".into()).await;
            asked.map_err(|error| self.error(error))?;
            let mut ids = Vec::new();
            let _ = timeout(FIND_LIMIT, async {
                while let Some(reply) = replies.next().await {
                    // Without subscribers the server itself replies, with an empty message.
                    ids.extend(String::from_utf8(reply.payload.to_vec()).ok().filter(|id| is_word(id)));
                }
            })
            .await;
            Ok(ids)
        })?;
        ids.sort();
        ids.dedup();
        Ok(ids.into_iter().map(|id| self.place(id)).collect())
    }

    /// Returns the collector of the team; `None` if there is none now.
    ///
    /// # Errors
    /// [`FleetError::Server`] if the server does not permit the question.
    pub fn collector(self: &Arc<Self>) -> Result<Option<Arc<dyn Dial>>, FleetError> {
        // One that does not reply now may answer later.
        let is_there = self.ask_for_collector()?.is_some();
        Ok(is_there.then(|| self.place(COLLECTOR.into())))
    }

    /// Returns true if the team has a collector that answers.
    ///
    /// # Errors
    /// [`FleetError::Server`] if the server does not permit the question.
    pub fn has_collector(&self) -> Result<bool, FleetError> {
        Ok(self.ask_for_collector()? == Some(true))
    }

    /// Returns whether the collector answers; `None` if there is none.
    fn ask_for_collector(&self) -> Result<Option<bool>, FleetError> {
        let request = self.client.request(self.subject(COLLECTOR_FIND), "".into());
        match self.runtime.block_on(async { timeout(FIND_LIMIT, request).await }) {
            Ok(Ok(_)) => Ok(Some(true)),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Ok(None),
            Ok(Err(error)) => Err(self.error(error)),
            Err(_) => Ok(Some(false)),
        }
    }

    fn place(self: &Arc<Self>, id: String) -> Arc<dyn Dial> {
        Arc::new(NatsPlace { server: Arc::clone(self), id })
    }
}

/// Returns true for a name that may be part of a subject.
fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Replies to tuners that ask who is there.
async fn tell_id(client: Client, mut finds: Subscriber, id: String) {
    while let Some(Message { reply: Some(reply), .. }) = finds.next().await {
        let _ = client.publish(reply, id.clone().into()).await;
    }
}

/// Makes a connection for each tuner that asks for one.
async fn accept_all(client: Client, mut dials: Subscriber, prefix: String, wires: Sender<Wire>) {
    while let Some(dial) = dials.next().await {
        let theirs = String::from_utf8(dial.payload.to_vec()).unwrap_or_default();
        let is_subject = theirs.strip_prefix(&prefix).is_some_and(is_word);
        let Some(reply) = dial.reply.filter(|_| is_subject) else { continue };
        let own = format!("{prefix}{}", random_word());
        let Ok(frames) = client.subscribe(own.clone()).await else { continue };
        let wire = wire(&client, &Handle::current(), frames, theirs.clone(), theirs);
        let _ = client.publish(reply, own.into()).await;
        if wires.send(wire).is_err() {
            return;
        }
    }
}

/// Returns a connection that sends to one subject and receives what a subscriber gets.
fn wire(client: &Client, runtime: &Handle, frames: Subscriber, subject: String, peer: String) -> Wire {
    let (sender, messages) = mpsc::sync_channel(MAX_UNREAD);
    let task = runtime.spawn(pass_on(frames, sender));
    let sender = NatsSender { client: client.clone(), runtime: runtime.clone(), subject, task };
    Wire { peer, sender: Box::new(sender), receiver: Box::new(NatsReceiver { messages }) }
}

/// Passes messages to the thread that receives. It ends if that thread is too slow: the connection
/// ends then, and leases make up for what was lost.
async fn pass_on(mut frames: Subscriber, messages: SyncSender<Vec<u8>>) {
    while let Some(message) = frames.next().await {
        let is_end = message.payload.first() == Some(&END);
        if messages.try_send(message.payload.to_vec()).is_err() || is_end {
            return;
        }
    }
}

/// Place of a worker on a NATS server.
struct NatsPlace {
    server: Arc<NatsServer>,
    id: String,
}

impl Dial for NatsPlace {
    fn address(&self) -> String {
        format!("{} of {}", self.id, self.server.options.url)
    }

    fn dial(&self, limit: Duration) -> Result<Wire, FleetError> {
        let unreachable = |cause: String| FleetError::Unreachable { address: self.address(), cause };
        let NatsServer { runtime, client, .. } = &*self.server;
        let prefix = self.server.subject("wire.");
        let own = format!("{prefix}{}", random_word());
        let answered = runtime.block_on(async {
            let frames = client.subscribe(own.clone()).await.map_err(|error| unreachable(error.to_string()))?;
            let request = client.request(self.server.subject(&format!("dial.{}", self.id)), own.into());
            match timeout(limit, request).await {
                Ok(Ok(reply)) => Ok((frames, reply.payload)),
                Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                    Err(unreachable("it is not connected to the server".into()))
                }
                Ok(Err(error)) => Err(unreachable(error.to_string())),
                Err(_) => Err(unreachable("it does not answer".into())),
            }
        });
        let (frames, theirs) = answered?;
        let theirs = String::from_utf8(theirs.to_vec()).unwrap_or_default();
        match theirs.strip_prefix(&prefix).is_some_and(is_word) {
            true => Ok(wire(client, runtime.handle(), frames, theirs, self.address())),
            false => Err(unreachable("its answer names no subject".into())),
        }
    }
}

struct NatsListener {
    server: Arc<NatsServer>,
    id: String,
    wires: Receiver<Wire>,
    tasks: Vec<JoinHandle<()>>,
}

impl Listen for NatsListener {
    fn address(&self) -> String {
        format!("{} (team {}, id {})", self.server.options.url, self.server.options.team, self.id)
    }

    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>> {
        match self.wires.recv_timeout(wait) {
            Ok(wire) => Ok(Some(wire)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the subscription of the server ended")),
        }
    }
}

impl Drop for NatsListener {
    fn drop(&mut self) {
        let tasks = std::mem::take(&mut self.tasks);
        self.server.runtime.block_on(async {
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
            let _ = timeout(FLUSH_LIMIT, self.server.client.flush()).await;
        });
    }
}

struct NatsSender {
    client: Client,
    runtime: Handle,
    subject: String,
    task: JoinHandle<()>,
}

impl NatsSender {
    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(1 + content.len());
        message.push(kind);
        message.extend(content);
        message
    }
}

impl FrameSender for NatsSender {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the frame is too long"));
        }
        // The task ends with the connection.
        if self.task.is_finished() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let published = self.client.publish(self.subject.clone(), Self::message(FRAME, frame).into());
        match self.runtime.block_on(async { timeout(SEND_LIMIT, published).await }) {
            Ok(published) => published.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for NatsSender {
    fn drop(&mut self) {
        let (client, subject) = (self.client.clone(), self.subject.clone());
        let end = async move {
            let _ = client.publish(subject, Self::message(END, &[]).into()).await;
            let _ = timeout(FLUSH_LIMIT, client.flush()).await;
        };
        self.task.abort();
        // A runtime that has ended drops the task at once, and the channel with it.
        let (ended, is_ended) = mpsc::channel::<()>();
        self.runtime.spawn(async move {
            end.await;
            drop(ended);
        });
        // A thread of the runtime must not wait for the task.
        if Handle::try_current().is_err() {
            let _ = is_ended.recv_timeout(2 * FLUSH_LIMIT);
        }
    }
}

struct NatsReceiver {
    messages: Receiver<Vec<u8>>,
}

impl FrameReceiver for NatsReceiver {
    fn receive(&mut self, wait: Duration) -> io::Result<Arrival> {
        match self.messages.recv_timeout(wait) {
            Ok(message) => match message.split_first() {
                Some((&FRAME, content)) if content.len() <= MAX_FRAME_BYTES => Ok(Arrival::Frame(content.to_vec())),
                Some((&END, _)) => Ok(Arrival::End),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is no frame")),
            },
            Err(RecvTimeoutError::Timeout) => Ok(Arrival::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Arrival::End),
        }
    }
}

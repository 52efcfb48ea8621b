//! Transport over TCP and Unix sockets. A frame is its length (32 bits, little-endian) and its
//! content.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::FleetError;
use crate::params::MAX_FRAME_BYTES;
use crate::transport::{Arrival, Dial, FrameReceiver, FrameSender, Listen, Wire};

/// Interval at which a listener looks for connections.
const ACCEPT_POLL: Duration = Duration::from_millis(20);

/// Time after which a peer that takes no bytes counts as lost.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Prefix of addresses of Unix sockets.
const UNIX: &str = "unix:";

/// Address of a worker: `HOST:PORT`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SocketPlace {
    /// Host name or address, and port.
    Tcp(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for SocketPlace {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self, FleetError> {
        let bad = || FleetError::Address(text.to_string());
        if let Some(path) = text.strip_prefix(UNIX) {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        match port.parse::<u16>() {
            Ok(_) if !host.is_empty() && !host.contains('/') => Ok(Self::Tcp(text.to_string())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for SocketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl SocketPlace {
    /// Starts to listen. Port 0 means any free port, which [`Listen::address`] then names.
    ///
    /// # Errors
    /// If the address is taken or is not one of this machine.
    pub fn listen(&self) -> Result<Box<dyn Listen>, FleetError> {
        let failed = |cause: io::Error| FleetError::Listen { address: self.to_string(), cause: cause.to_string() };
        match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?.to_string();
                Ok(Box::new(TcpPlace { listener, address }))
            }
            Self::Unix(path) => {
                let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
                    ErrorKind::AddrInUse => {
                        let cause = "the file exists: remove it unless another worker uses it".into();
                        FleetError::Listen { address: self.to_string(), cause }
                    }
                    _ => failed(error),
                })?;
                listener.set_nonblocking(true).map_err(failed)?;
                let inode = fs::metadata(path).map_err(failed)?.ino();
                Ok(Box::new(UnixPlace { listener, path: path.clone(), inode }))
            }
        }
    }

    fn connect(&self, limit: Duration) -> io::Result<ConnectedSocket> {
        let path = match self {
            Self::Unix(path) => path,
            Self::Tcp(address) => {
                let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
                let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
                for address in &addresses {
                    match TcpStream::connect_timeout(address, limit / addresses.len() as u32) {
                        Ok(stream) => return Ok(ConnectedSocket::Tcp(stream)),
                        Err(error) => failure = error,
                    }
                }
                return Err(failure);
            }
        };
        UnixStream::connect(path).map(ConnectedSocket::Unix)
    }
}

impl Dial for SocketPlace {
    fn address(&self) -> String {
        self.to_string()
    }

    fn dial(&self, limit: Duration) -> Result<Wire, FleetError> {
        let wire = self.connect(limit).and_then(|stream| stream.into_wire(self.to_string()));
        wire.map_err(|cause| FleetError::Unreachable { address: self.to_string(), cause: cause.to_string() })
    }
}

struct TcpPlace {
    listener: TcpListener,
    address: String,
}

impl Listen for TcpPlace {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>> {
        let accepted = accept_within(wait, || self.listener.accept());
        Ok(accepted.and_then(|(stream, peer)| ConnectedSocket::Tcp(stream).into_wire(peer.to_string()).ok()))
    }
}

struct UnixPlace {
    listener: UnixListener,
    path: PathBuf,
    /// Number of the file that this process made.
    inode: u64,
}

impl Listen for UnixPlace {
    fn address(&self) -> String {
        format!("{UNIX}{}", self.path.display())
    }

    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>> {
        let accepted = accept_within(wait, || self.listener.accept());
        Ok(accepted.and_then(|(stream, _)| ConnectedSocket::Unix(stream).into_wire(self.address()).ok()))
    }
}

impl Drop for UnixPlace {
    fn drop(&mut self) {
        // Another file may have taken the name.
        if fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Calls a listener that does not block until it has a connection or the time is over. No error is
/// a reason to end: a connection broke before it was accepted, or peers opened more than the
/// process may have files.
fn accept_within<T>(wait: Duration, mut accept: impl FnMut() -> io::Result<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Ok(accepted) = accept() {
            return Some(accepted);
        }
        if start.elapsed() >= wait {
            return None;
        }
        thread::sleep(ACCEPT_POLL.min(wait));
    }
}

/// Connected socket of either kind.
enum ConnectedSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ConnectedSocket {
    fn into_wire(self, peer: String) -> io::Result<Wire> {
        let other = match &self {
            Self::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE_LIMIT))?;
                Self::Tcp(stream.try_clone()?)
            }
            Self::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(WRITE_LIMIT))?;
                Self::Unix(stream.try_clone()?)
            }
        };
        let receiver = SocketReceiver { stream: other, buffer: Vec::new() };
        Ok(Wire { peer, sender: Box::new(SocketSender(self)), receiver: Box::new(receiver) })
    }

    fn set_read_timeout(&self, wait: Duration) -> io::Result<()> {
        // Zero would mean without a limit.
        let wait = Some(wait.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(wait),
            Self::Unix(stream) => stream.set_read_timeout(wait),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }
}

struct SocketSender(ConnectedSocket);

impl FrameSender for SocketSender {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let len = u32::try_from(frame.len()).ok().filter(|&len| len as usize <= MAX_FRAME_BYTES);
        let len = len.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the frame is too long"))?;
        let mut bytes = Vec::with_capacity(4 + frame.len());
        bytes.extend(len.to_le_bytes());
        bytes.extend(frame);
        match &mut self.0 {
            ConnectedSocket::Tcp(stream) => stream.write_all(&bytes),
            ConnectedSocket::Unix(stream) => stream.write_all(&bytes),
        }
    }
}

impl Drop for SocketSender {
    fn drop(&mut self) {
        // The peer may have closed the connection already.
        let _ = match &self.0 {
            ConnectedSocket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            ConnectedSocket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

struct SocketReceiver {
    stream: ConnectedSocket,
    /// Bytes that arrived and are not yet a whole frame.
    buffer: Vec<u8>,
}

impl SocketReceiver {
    /// Returns the next frame if all of it has arrived.
    fn whole(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((len, _)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > MAX_FRAME_BYTES {
            let message = format!("a frame of {len} bytes, more than {MAX_FRAME_BYTES}");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        let Some(content) = self.buffer.get(4..4 + len) else { return Ok(None) };
        let frame = content.to_vec();
        self.buffer.drain(..4 + len);
        Ok(Some(frame))
    }
}

impl FrameReceiver for SocketReceiver {
    fn receive(&mut self, wait: Duration) -> io::Result<Arrival> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(frame) = self.whole()? {
                return Ok(Arrival::Frame(frame));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(left)?;
            let mut bytes = [0; 16 << 10];

            match self.stream.read(&mut bytes) {
                Ok(0) if self.buffer.is_empty() => return Ok(Arrival::End),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.buffer.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline {
                        return Ok(Arrival::Nothing);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

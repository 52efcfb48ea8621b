//! HTTP server of a worker for metrics: one page, one client at a time, bounded in size and time.
//!
//! Its thread looks for a client ten times a second, and serves at most one each time: whatever
//! clients do, they take next to nothing of the worker's processors.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::FleetError;

/// Interval at which the server looks for a client.
const POLL: Duration = Duration::from_millis(100);

/// Time that a client has for its request, and again to take the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(1);

/// Most bytes of a request up to the end of its head.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Path of the page.
const PAGE: &str = "/metrics";

/// Content type of Prometheus' text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Address at which a worker answers scrapes.
pub struct MetricsPlace {
    listener: Arc<TcpListener>,
    address: String,
}

impl MetricsPlace {
    /// Starts to listen at `HOST:PORT`. Port 0 means any free port.
    ///
    /// # Errors
    /// [`FleetError::Listen`] if the address is taken or is not one of this machine.
    pub fn bind(address: &str) -> Result<Self, FleetError> {
        let failed = |cause: io::Error| FleetError::Listen { address: address.into(), cause: cause.to_string() };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        Ok(Self { listener: Arc::new(listener), address })
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        format!("http://{}{PAGE}", self.address)
    }

    /// Starts a thread that answers each scrape with the text that `page` returns. It ends soon
    /// after the returned value is dropped, which does not wait for its client.
    pub fn serve(&self, page: impl Fn() -> String + Send + 'static) -> MetricsServer {
        let (listener, is_over) = (Arc::clone(&self.listener), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                // A client that broke off, or that does not read, is no reason to end.
                if let Ok((stream, _)) = listener.accept() {
                    let _ = answer(stream, &page);
                }
                thread::sleep(POLL);
            }
        });
        MetricsServer(is_over)
    }
}

/// Running server. Dropping it ends it.
pub struct MetricsServer(Arc<AtomicBool>);

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, page: &dyn Fn() -> String) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let (status, text) = match read_head(&mut stream)? {
        Ok(head) => respond(&head, page),
        Err(status) => (status, format!("{status}\n")),
    };

    let is_head = matches!(&status, Status::Ok { has_body: false });
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n",
        text.len(),
        if status == Status::Method { "Allow: GET, HEAD\r\n" } else { "" },
    );
    if !is_head {
        response.push_str(&text);
    }
    stream.write_all(response.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok { has_body: bool },
    Malformed,
    NoPage,
    Method,
    Late,
    TooLong,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok { .. } => "200 OK",
            Self::Malformed => "400 Bad Request",
            Self::NoPage => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::Late => "408 Request Timeout",
            Self::TooLong => "431 Request Header Fields Too Large",
        })
    }
}

/// Reads the head of a request, or returns the reason that there is none.
fn read_head(stream: &mut TcpStream) -> io::Result<Result<Vec<u8>, Status>> {
    let start = Instant::now();
    let mut head = Vec::new();
    let is_whole =
        |head: &[u8]| head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n");
    while !is_whole(&head) {
        if head.len() >= MAX_HEAD_BYTES {
            return Ok(Err(Status::TooLong));
        }
        let left = CLIENT_LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(Err(Status::Late));
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 1024];

        match stream.read(&mut bytes) {
            Ok(0) => return Ok(Err(Status::Malformed)),
            Ok(read) => head.extend(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(head))
}

/// Returns the status and the text for the head of a request.
fn respond(head: &[u8], page: &dyn Fn() -> String) -> (Status, String) {
    let line = head.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
    let (method, path) = match words[..] {
        [method, path, version] if version.starts_with("HTTP/1.") => (method, path),
        _ => return (Status::Malformed, "not a request of HTTP/1\n".into()),
    };

    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match (method, path) {
        ("GET" | "HEAD", PAGE) => (Status::Ok { has_body: method == "GET" }, page()),
        ("GET" | "HEAD", _) => (Status::NoPage, format!("the only page is {PAGE}\n")),
        _ => (Status::Method, "only GET and HEAD are answered\n".into()),
    }
}

//! Reader of Prometheus' text format, version 0.0.4, which accepts nothing else, and a client that
//! scrapes.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Values of a page, by metric and labels.
pub struct Scraped {
    samples: HashMap<(String, BTreeMap<String, String>), f64>,
    kinds: HashMap<String, String>,
}

impl Scraped {
    /// Scrapes a page.
    pub fn of(address: &str) -> Self {
        let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        Self::read(&body).unwrap_or_else(|error| panic!("{error} in\n{body}"))
    }

    /// Parses a page, or returns the first error.
    pub fn read(page: &str) -> Result<Self, String> {
        let mut read = Self { samples: HashMap::new(), kinds: HashMap::new() };
        let (mut helped, mut present) = (HashSet::new(), String::new());
        if !page.ends_with('\n') {
            return Err("the last line has no end".into());
        }

        for line in page.lines() {
            let wrong = |why: &str| format!("{why}: {line}");
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (metric, text) = help.split_once(' ').ok_or_else(|| wrong("no text"))?;
                let is_new = is_name(metric, ":") && helped.insert(metric.to_string());
                let is_escaped = text.split(r"\\").all(|part| !part.replace(r"\n", "").contains('\\'));
                if !is_new || !is_escaped {
                    return Err(wrong("not a help"));
                }
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (metric, kind) = kind.split_once(' ').ok_or_else(|| wrong("no type"))?;
                let is_kind = ["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind);
                if !is_name(metric, ":") || !is_kind || read.kinds.insert(metric.into(), kind.into()).is_some() {
                    return Err(wrong("not a type"));
                }
                present = metric.into();
            } else if !line.is_empty() && !line.starts_with('#') {
                let (metric, labels, value) = sample(line).ok_or_else(|| wrong("not a sample"))?;
                if metric != present || !helped.contains(&metric) {
                    return Err(wrong("not with its help and type"));
                }
                if read.kinds[&metric] == "counter" && (!metric.ends_with("_total") || value < 0.0) {
                    return Err(wrong("not a counter"));
                }
                if read.samples.insert((metric, labels), value).is_some() {
                    return Err(wrong("twice"));
                }
            }
        }
        Ok(read)
    }

    /// Returns the only value of a metric whose labels include `labels`.
    pub fn value(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.all(metric, labels);
        assert_eq!(found.len(), 1, "{metric} {labels:?}: {found:?}");
        found[0].1
    }

    /// Returns the labels and values of a metric whose labels include `labels`.
    pub fn all(&self, metric: &str, labels: &[(&str, &str)]) -> Vec<(&BTreeMap<String, String>, f64)> {
        let has =
            |of: &BTreeMap<String, String>| labels.iter().all(|(l, v)| of.get(*l).is_some_and(|value| value == v));
        let samples = self.samples.iter().filter(|((of, found), _)| of == metric && has(found));
        samples.map(|((_, labels), value)| (labels, *value)).collect()
    }
}

fn is_name(text: &str, more: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || more.contains(c);
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Parses `METRIC{LABEL="VALUE",..} NUMBER`.
fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    let end = line.find(['{', ' '])?;
    let (metric, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"")?;
            let mut text = String::new();
            let mut chars = value.char_indices();
            let closed = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => text.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    (_, c) => text.push(c),
                }
            };
            if !is_name(label, "") || labels.insert(label.to_string(), text).is_some() {
                return None;
            }
            rest = &value[closed + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }

    let value = rest.strip_prefix(' ')?;
    let is_number = value.parse::<f64>().is_ok() && !value.contains(|c: char| c.is_ascii_alphabetic() && c != 'e');
    let value = if ["NaN", "+Inf", "-Inf"].contains(&value) || is_number { value.parse().ok()? } else { return None };
    is_name(metric, ":").then(|| (metric.to_string(), labels, value))
}

/// Sends a request, and returns head and body of the response.
pub fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (format!("{head}\r\n"), body.to_string())
}

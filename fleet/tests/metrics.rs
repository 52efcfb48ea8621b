//! Metrics of a worker: what they count, and hostile clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use autotune_fleet::{DeviceWish, Fleet, FleetOptions, MetricsPlace, WorkerOptions};
use autotune_measure::Measurer;

use crate::contract::{Place, tcp};
use crate::prometheus::{Scraped, ask};
use crate::sim::{
    SimDevice, SimWorker, candidates, check_results, connect, measure_all, params, target, wait_until, wish,
};

/// Starts a worker with metrics, and returns their address.
fn worker(place: Place, device: &SimDevice) -> (SimWorker, String) {
    let metrics = MetricsPlace::bind("127.0.0.1:0").unwrap();
    let url = metrics.url();
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).unwrap();
    let name = "rack \"7\"\\\n";
    let options = WorkerOptions { params: params(), metrics: Some(metrics), ..WorkerOptions::new(name) };
    (SimWorker::start_with(place.listener, options, device), address.to_string())
}

#[test]
fn metrics_count_wishes_by_their_end() {
    let place = tcp();
    let (dial, again) = (Arc::clone(&place.dial), Arc::clone(&place.dial));
    let device = SimDevice::default();
    let (_worker, address) = worker(place, &device);
    let before = Scraped::of(&address);
    let key = target().key();
    let info = before.all("autotune_worker_info", &[("worker", "rack \"7\"\\\n"), ("target", &key)]);
    assert_eq!(info.len(), 1);
    assert!(info[0].0.contains_key("version") && info[0].0.contains_key("lowering"));
    assert_eq!(before.value("autotune_worker_wishes_total", &[("result", "measured")]), 0.0);
    assert!(before.all("autotune_worker_last_lease_timestamp_seconds", &[]).is_empty());

    let all = candidates(30, 1);
    let mut fleet = connect(vec![dial]).0.unwrap();
    assert_eq!(check_results(&all, measure_all(&mut fleet, &all)), 0);
    fleet.race(&all[..3], 0.1).unwrap();
    let after = Scraped::of(&address);
    assert_eq!(after.value("autotune_worker_tuners", &[]), 1.0);
    assert_eq!(after.value("autotune_worker_wishes_total", &[("result", "measured")]), 30.0);
    assert_eq!(after.value("autotune_worker_wishes_total", &[("result", "failed")]), 0.0);
    assert_eq!(after.value("autotune_worker_wishes_total", &[("result", "returned")]), 0.0);
    assert_eq!(after.value("autotune_worker_races_total", &[]), 1.0);
    assert!(after.value("autotune_worker_leases_total", &[]) >= 2.0);
    assert!(after.value("autotune_worker_last_lease_timestamp_seconds", &[]) > 1.6e9);
    let secs = after.value("autotune_worker_reference_kernel_seconds", &[("target", &key)]);
    assert!((0.99e-4..1.01e-4).contains(&secs), "{secs}");

    // Another tuner asks for the same device by its key: a page has each value once.
    let wish = DeviceWish { target: key.clone(), threads: None, ..wish() };
    let options = FleetOptions { params: params(), ..FleetOptions::default() };
    let other = Fleet::connect(vec![again], &wish, options).unwrap();
    assert_eq!(Scraped::of(&address).all("autotune_worker_reference_kernel_seconds", &[]).len(), 1);
    drop(other);

    // Wishes of a tuner that leaves are returned.
    let count = std::cell::Cell::new(0);
    let broken_off = fleet.measure(&candidates(200, 2), &mut |_, _| {
        count.set(count.get() + 1);
        std::ops::ControlFlow::Break(())
    });
    broken_off.unwrap();
    let returned = || Scraped::of(&address).value("autotune_worker_wishes_total", &[("result", "returned")]);
    wait_until("the rest is returned", || returned() > 0.0);
    wait_until("nothing waits", || Scraped::of(&address).value("autotune_worker_queued_wishes", &[]) == 0.0);
    drop(fleet);
    wait_until("the tuner left", || Scraped::of(&address).value("autotune_worker_tuners", &[]) == 0.0);
}

#[test]
fn scrapes_and_hostile_clients_do_not_disturb_a_worker() {
    let place = tcp();
    let dial = Arc::clone(&place.dial);
    let (_worker, address) = worker(place, &SimDevice::default());
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /metrics\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
        ("GET /metrics?x=1 HTTP/1.0\n\n", "200"),
    ] {
        let (head, _) = ask(&address, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {head}");
    }
    assert_eq!(ask(&address, "HEAD /metrics HTTP/1.1\r\n\r\n").1, "");

    // Clients that say nothing, or send slowly, have a second.
    let silent = TcpStream::connect(&address).unwrap();
    Scraped::of(&address);
    drop(silent);
    let mut long = TcpStream::connect(&address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(9 << 10));
    // The server may end the connection before all is sent.
    let _ = long.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));

    let _silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let all = candidates(60, 1);
    let mut fleet = connect(vec![dial]).0.unwrap();
    assert_eq!(check_results(&all, measure_all(&mut fleet, &all)), 0);
}

#[test]
fn the_reader_of_the_format_refuses_what_is_not_in_it() {
    let page = |sample: &str| format!("# HELP a_total x\n# TYPE a_total counter\n{sample}\n");
    for good in ["a_total 1", "a_total{b=\"c\"} 1e-3", "a_total{b=\"\\\"\\\\\\n\",d=\"\"} 2"] {
        assert!(Scraped::read(&page(good)).is_ok(), "{good}");
    }
    for bad in [
        "a_total",
        "a_total x",
        "a_total{b=c} 1",
        "a_total{b=\"c} 1",
        "b_total 1",
        "a_total 1\na_total 2",
        "a_total inf",
    ] {
        assert!(Scraped::read(&page(bad)).is_err(), "{bad}");
    }
}

//! Other libraries, each run by a server.py process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use autotune_ir::spec::TensorSpec;
use autotune_runtime::allowed_cores;
use autotune_workloads::{
    Activation, AttentionWorkload, Conv2d, Epilogue, Function, LayerNormWorkload, Matmul, Pointwise, PointwiseOp,
    Pool2d, PoolKind, ReduceOp, ReduceWorkload, RmsNorm, Sides, TransposeWorkload, Workload,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::report::LeftOut;
use crate::server::Server;

/// Name of the peer that runs on GPUs.
const GPU_PEER: &str = "torch";

/// Library as listed in the `peers.json` of setup.sh.
#[derive(Deserialize)]
struct Listed {
    /// Name of the library for server.py.
    peer: String,
    /// Environment variables that it needs.
    #[serde(default)]
    env: HashMap<String, String>,
    /// Python interpreter, if not the one of the folder.
    python: Option<PathBuf>,
}

/// Location of server.py, and the selection of libraries.
pub(crate) struct Place<'a> {
    /// Path of the program server.py.
    pub(crate) program: &'a Path,
    /// Folder that setup.sh made, with the installed libraries.
    pub(crate) folder: &'a Path,
    /// Number of threads of a library that runs on the CPU.
    pub(crate) threads: usize,
    /// True to select libraries that run on a GPU.
    pub(crate) gpu: bool,
}

/// Starts every installed library that runs on the device; returns the running ones, and the others
/// with the reason.
pub(crate) fn start_all(place: &Place<'_>) -> Result<(Vec<Server>, Vec<LeftOut>)> {
    let (mut servers, mut left_out) = (Vec::new(), Vec::new());
    let list = place.folder.join("peers.json");
    let Ok(text) = std::fs::read_to_string(&list) else {
        let why = format!("{} is missing; lab/peers/setup.sh makes it", list.display());
        left_out.push(LeftOut { name: "other libraries".into(), why });
        return Ok((servers, left_out));
    };
    let listed: Vec<Listed> = serde_json::from_str(&text).with_context(|| list.display().to_string())?;
    for (i, peer) in listed.iter().enumerate().filter(|(_, peer)| (peer.peer == GPU_PEER) == place.gpu) {
        let log = place.folder.join(format!("server{i}.log"));
        match start(place, peer, &log) {
            Ok(server) => servers.push(server),
            Err(why) => left_out.push(LeftOut { name: peer.peer.clone(), why: format!("{why:#}") }),
        }
    }
    Ok((servers, left_out))
}

fn start(place: &Place<'_>, peer: &Listed, log: &Path) -> Result<Server> {
    // A process that drives a GPU may use all cores.
    let wanted = if place.gpu { usize::MAX } else { place.threads };
    let cores: Vec<String> = allowed_cores().iter().take(wanted).map(usize::to_string).collect();
    let own = place.folder.join("bin/python");
    let mut command = Command::new(peer.python.as_ref().unwrap_or(&own));
    command.arg(place.program).arg(&peer.peer).arg(cores.join(","));
    command.envs(&peer.env).env("PEERS_TIMING", place.folder.join("timing.so")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stderr(std::fs::File::create(log).with_context(|| log.display().to_string())?);
    Server::start(command)
}

/// Returns the request for a workload in server.py's protocol: the operator with its parameters,
/// and the shapes of its operands and output. Fails for workloads that the peers do not support.
pub(crate) fn order(workload: &Workload) -> Result<Value> {
    let mut fields = operator(workload).with_context(|| format!("the peers know no {workload}"))?;
    let Epilogue { scale, bias, residual, activation, post_scale, post_bias, post_residual, table } =
        workload.epilogue();
    let is_plain = !scale && !post_scale && !post_bias && !post_residual && !table;
    let is_known = is_plain && [Activation::None, Activation::Relu].contains(&activation);
    ensure!(is_known, "the peers know {workload} with bias, residual and ReLU only");
    let has_epilogue = bias || residual || activation != Activation::None;
    let is_contraction = workload.sizes::<Conv2d>().is_some() || workload.sizes::<Matmul>().is_some();
    ensure!(is_contraction || !has_epilogue, "the peers know {workload} without its epilogue only");

    fields["exact"] = workload.is_exact().into();
    fields["dtype"] = workload.dtype().word().into();
    fields["bias"] = bias.into();
    fields["add"] = residual.into();
    fields["relu"] = (activation == Activation::Relu).into();
    let operand = |tensor: &TensorSpec| (tensor.name.to_string(), json!(tensor.shape));
    fields["operands"] = workload.spec().operands().map(operand).collect();
    fields["output_shape"] = workload.output_shape().into();
    Ok(fields)
}

/// Returns the operator with the parameters that the shapes do not determine; `None` if the peers
/// do not support it.
fn operator(workload: &Workload) -> Option<Value> {
    if let Some(c) = workload.sizes::<Conv2d>() {
        return Some(json!({
            "op": "conv2d", "n": c.n, "c": c.c, "h": c.h, "w": c.w, "o": c.o, "kh": c.kh, "kw": c.kw,
            "sh": c.stride[0], "sw": c.stride[1], "ph": c.pad[0], "pw": c.pad[1],
            "dh": c.dilation[0], "dw": c.dilation[1], "groups": c.groups,
        }));
    }
    if let Some(m) = workload.sizes::<Matmul>().filter(|m| !m.ta && !m.tb) {
        let &[(b, Sides::Both)] = m.b.axes() else { return None };
        return Some(json!({"op": "matmul", "b": b, "m": m.m, "n": m.n, "k": m.k}));
    }

    if let Some(p) = workload.sizes::<Pool2d>().filter(|p| p.kind != PoolKind::InnerAverage) {
        let kind = if p.kind == PoolKind::Max { "max" } else { "average" };
        return Some(json!({
            "op": "pool2d", "kind": kind, "kernel": p.kernel, "stride": p.stride, "pad": p.pad,
            "dilation": p.dilation, "ceil": p.ceil,
        }));
    }
    if let Some(r) = workload.sizes::<ReduceWorkload>().filter(|r| r.extents().len() <= 3) {
        let kind = match r.op() {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::Mean => "mean",
        };
        return Some(json!({"op": "reduce", "kind": kind}));
    }

    if let Some(norm) = workload.sizes::<LayerNormWorkload>() {
        return Some(json!({"op": "layer_norm", "eps": norm.eps}));
    }
    if let Some(norm) = workload.sizes::<RmsNorm>() {
        return Some(json!({"op": "rms_norm", "eps": norm.eps}));
    }

    if let Some(p) = workload.sizes::<Pointwise>() {
        let &[m, n] = &p.shape[..] else { return None };
        let gelu = Pointwise::new(m, n, PointwiseOp::Unary(Function::Activation(Activation::Gelu)));
        return (*p == gelu).then(|| json!({"op": "pointwise", "kind": "gelu"}));
    }
    if let Some(t) = workload.sizes::<TransposeWorkload>() {
        return (t.perm() == [0, 2, 1]).then(|| json!({"op": "transpose"}));
    }
    if let Some(&a) = workload.sizes::<AttentionWorkload>() {
        let is_plain = a == AttentionWorkload::new(a.b, [a.m, a.n], [a.k, a.d]);
        return is_plain.then(|| json!({"op": "attention"}));
    }

    let name = workload.operator().kind().name;
    ["softmax", "log_softmax"].contains(&name).then(|| json!({ "op": name }))
}

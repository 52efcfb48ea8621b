//! Other libraries, each served by a server.py.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use autotune_ir::spec::Tensor;
use autotune_runtime::allowed_cores;
use autotune_workloads::{
    Activation, Attention, Conv2d, Epilogue, Function, LayerNorm, Matmul, Pointwise, PointwiseOp, Pool2d, PoolKind,
    Reduce, ReduceOp, RmsNorm, Sides, Transpose, Workload,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::report::LeftOut;
use crate::server::Server;

/// The peer that runs on a GPU.
const GPU_PEER: &str = "torch";

/// One library as `peers.json` of setup.sh lists it.
#[derive(Deserialize)]
struct Listed {
    /// What server.py is asked for.
    peer: String,
    /// Environment that it needs.
    #[serde(default)]
    env: HashMap<String, String>,
    /// The Python it runs in, if not the folder's own.
    python: Option<PathBuf>,
}

/// Where server.py is, and what of it is wanted.
pub(crate) struct Place<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// Folder that setup.sh made: what is installed.
    pub(crate) folder: &'a Path,
    /// Threads of a library that runs on the CPU.
    pub(crate) threads: usize,
    /// True for libraries that run on a GPU.
    pub(crate) gpu: bool,
}

/// Starts every library that is installed and runs on the device, and says which do not start and
/// why.
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
    // What drives a GPU may run anywhere.
    let wanted = if place.gpu { usize::MAX } else { place.threads };
    let cores: Vec<String> = allowed_cores().iter().take(wanted).map(usize::to_string).collect();
    let own = place.folder.join("bin/python");
    let mut command = Command::new(peer.python.as_ref().unwrap_or(&own));
    command.arg(place.program).arg(&peer.peer).arg(cores.join(","));
    command.envs(&peer.env).env("PEERS_TIMING", place.folder.join("timing.so")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stderr(std::fs::File::create(log).with_context(|| log.display().to_string())?);
    Server::start(command)
}

/// A workload as server.py is asked for it: what its operator is made with, the shapes of its
/// operands and of its output.
pub(crate) fn order(workload: &Workload) -> Result<Value> {
    let mut fields = operator(workload).with_context(|| format!("the peers know no {workload}"))?;
    let Epilogue { scale, bias, residual, activation, post_scale, post_bias } = workload.epilogue();
    let is_known = !scale && !post_scale && !post_bias && [Activation::None, Activation::Relu].contains(&activation);
    ensure!(is_known, "the peers know {workload} with bias, residual and ReLU only");
    let has_epilogue = bias || residual || activation != Activation::None;
    let is_contraction = workload.sizes::<Conv2d>().is_some() || workload.sizes::<Matmul>().is_some();
    ensure!(is_contraction || !has_epilogue, "the peers know {workload} without its epilogue only");

    fields["exact"] = workload.is_exact().into();
    fields["dtype"] = workload.dtype().word().into();
    fields["bias"] = bias.into();
    fields["add"] = residual.into();
    fields["relu"] = (activation == Activation::Relu).into();
    let operand = |tensor: &Tensor| (tensor.name.to_string(), json!(tensor.shape));
    fields["operands"] = workload.spec().operands().map(operand).collect();
    fields["output_shape"] = workload.output_shape().into();
    Ok(fields)
}

/// The operator and what it is made with, less what the shapes of its operands say.
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
    if let Some(r) = workload.sizes::<Reduce>().filter(|r| r.extents().len() <= 3) {
        let kind = match r.op() {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::Mean => "mean",
        };
        return Some(json!({"op": "reduce", "kind": kind}));
    }

    if let Some(norm) = workload.sizes::<LayerNorm>() {
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
    if let Some(t) = workload.sizes::<Transpose>() {
        return (t.perm() == [0, 2, 1]).then(|| json!({"op": "transpose"}));
    }
    if let Some(&a) = workload.sizes::<Attention>() {
        let is_plain = a == Attention::new(a.b, [a.m, a.n], [a.k, a.d]);
        return is_plain.then(|| json!({"op": "attention"}));
    }

    let name = workload.operator().kind().name;
    ["softmax", "log_softmax"].contains(&name).then(|| json!({ "op": name }))
}

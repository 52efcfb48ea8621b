//! A provider in a session: it chooses the parts of a model that it supports, and compiles them.

use std::collections::HashSet;
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::{ptr, slice};

use autotune_db::Source;
use ort_sys::{OrtGraph, OrtLogger, OrtNode, OrtStatusPtr};

use crate::abi::{ComputeInfo, Ep, FusionOptions, GraphSupport, PROFILED_VERSION, ProfilerTable, VERSION};
use crate::compatibility::described;
use crate::compute::CompiledPart;
use crate::context_node::is_own;
use crate::factory::NAME;
use crate::graph::{HostGraph, HostNode, PartError, host_name};
use crate::host::Host;
use crate::part::{PartSession, ProviderOptions};
use crate::partition::{groups, is_worthwhile};
use crate::profile::{ProfiledPart, Profiler, Profiles};
use crate::trial::{Verdict, verdict};

/// Largest number of rounds that find unsupported nodes; then only parts that are known to be
/// supported are taken.
const MOST_ROUNDS: usize = 256;

/// A provider. ONNX Runtime knows its first field.
#[repr(C)]
pub(crate) struct Provider {
    table: Ep,
    host: Host,
    logger: *const OrtLogger,
    options: ProviderOptions,
    /// Description of the target and version, for compiled models.
    compatibility: CString,
    /// Profiles that the session writes.
    profiles: Arc<Profiles>,
}

impl Provider {
    /// Creates the provider of a session, whose logger outlives it.
    pub(crate) fn create(host: Host, options: ProviderOptions, logger: *const OrtLogger) -> *mut Ep {
        let is_profiled = host.profiling().is_some();
        let table = Ep {
            version: if is_profiled { PROFILED_VERSION } else { VERSION },
            name,
            capability,
            compile,
            release_compute_infos,
            preferred_layout: None,
            converts_layout: None,
            set_dynamic_options: None,
            on_run_start: None,
            on_run_end: None,
            create_allocator: None,
            create_sync_stream: None,
            compatibility_info: Some(compatibility_info),
            kernel_registry: None,
            may_run_concurrently: None,
            sync: None,
            create_profiler: is_profiled.then_some(create_profiler),
        };
        let compatibility = CString::new(described(&options.target)).unwrap_or_default();
        let profiles = Arc::new(Profiles::default());
        Box::into_raw(Box::new(Self { table, host, logger, options, compatibility, profiles })).cast()
    }

    /// Releases the provider of a session that ends.
    ///
    /// # Safety
    ///
    /// The table is null or comes from [`create`](Self::create), and is not used again.
    pub(crate) unsafe fn release(ep: *mut Ep) {
        if !ep.is_null() {
            // SAFETY: as for this function; the table is the first field.
            drop(unsafe { Box::from_raw(ep.cast::<Self>()) });
        }
    }

    /// Returns groups of nodes that this provider computes, each as one node.
    fn parts(&self, graph: &HostGraph) -> Vec<Vec<usize>> {
        let (producers, mut is_supported) = (graph.producers(), graph.eligible());
        let mut known: HashSet<Vec<usize>> = HashSet::new();
        for round in 0..=MOST_ROUNDS {
            let mut parts = groups(&producers, &is_supported);
            parts.retain(|part| is_worthwhile(part.iter().map(|&number| &*graph.nodes[number].operator)));

            // Without the nodes that are not supported, the groups are others.
            let mut wrong = Vec::new();
            for part in parts.iter().filter(|part| !known.contains(*part)).cloned().collect::<Vec<_>>() {
                let unsupported = self.unsupported(graph, &part);
                match unsupported.is_empty() {
                    true => drop(known.insert(part)),
                    false => wrong.extend(unsupported),
                }
            }
            if wrong.is_empty() || round == MOST_ROUNDS {
                parts.retain(|part| known.contains(part));
                return parts;
            }
            wrong.into_iter().for_each(|number| is_supported[number] = false);
        }
        Vec::new()
    }

    /// Returns nodes of a part that are not supported; all, if it is unknown which.
    fn unsupported(&self, graph: &HostGraph, part: &[usize]) -> Vec<usize> {
        match graph.part(part).map(|model| verdict(&model, &self.options.target)) {
            Ok(Verdict::Supported) => Vec::new(),
            Ok(Verdict::Without(numbers)) => numbers,
            Err(PartError { node: Some(number), .. }) => vec![number],
            Ok(Verdict::Unsupported) | Err(_) => part.to_vec(),
        }
    }

    /// Compiles a graph that consists of nodes of this provider, or loads one that it compiled.
    fn compiled(&self, graph: &HostGraph, source: &Option<Arc<dyn Source>>) -> Result<PartSession, String> {
        let part = match self.compiled_node(graph)? {
            Some(node) => self.options.of_node(graph, node)?,
            None => self.options.of_graph(graph, source.clone())?,
        };
        self.warn(part.warning.as_slice());
        Ok(part)
    }

    /// Tunes graphs that are compiled next, if the session is to do so.
    fn tune(&self, graphs: &[HostGraph]) -> Result<(), String> {
        let mut new = Vec::new();
        for graph in graphs {
            if self.compiled_node(graph)?.is_none() {
                new.push(graph);
            }
        }
        self.warn(&self.options.tune(&new)?);
        Ok(())
    }

    /// Returns the EPContext node that a graph consists of, if it is this provider's.
    fn compiled_node<'a>(&self, graph: &'a HostGraph) -> Result<Option<&'a HostNode>, String> {
        match &graph.nodes[..] {
            [node] if is_own(self.host, node)? => Ok(Some(node)),
            _ => Ok(None),
        }
    }

    /// Writes warnings to the log of the session.
    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            // SAFETY: the logger is the session's, which outlives the provider.
            unsafe { self.host.warn(self.logger, warning) };
        }
    }

    /// Makes the EPContext node of a compiled graph, if the session is to have one.
    ///
    /// # Safety
    ///
    /// The node belongs to ONNX Runtime.
    unsafe fn context_node(
        &self,
        graph: &HostGraph,
        fused: *const OrtNode,
        part: &PartSession,
    ) -> Result<*mut OrtNode, String> {
        let (Some(settings), Some(contents)) = (&self.options.context, &part.contents) else {
            return Ok(ptr::null_mut());
        };
        let [inputs, outputs] = graph.names()?;
        // SAFETY: as for this function.
        unsafe { settings.node(graph, fused, [&inputs, &outputs], contents) }
    }
}

unsafe extern "system" fn name(_: *const Ep) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn capability(
    this: *mut Ep,
    graph: *const OrtGraph,
    support: *mut GraphSupport,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`, which is the first field of the provider.
    let provider = unsafe { &*this.cast::<Provider>() };
    provider.host.guarded(|| {
        // SAFETY: the graph lives during this call.
        let graph = unsafe { HostGraph::of(provider.host, graph) }?;
        if !graph.may_be_fused()? {
            return Ok(());
        }
        let options = FusionOptions { version: VERSION, drops_constants: true };
        let mut parts = provider.parts(&graph);
        for (number, node) in graph.nodes.iter().enumerate() {
            if is_own(provider.host, node)? {
                parts.push(vec![number]);
            }
        }
        for part in parts {
            let nodes: Vec<*const OrtNode> = part.into_iter().map(|number| graph.nodes[number].node).collect();
            // SAFETY: the nodes belong to the graph.
            let added = unsafe { (provider.host.ep.add_nodes_to_fuse)(support, nodes.as_ptr(), nodes.len(), &options) };
            provider.host.check(added)?;
        }
        Ok(())
    })
}

unsafe extern "system" fn compile(
    this: *mut Ep,
    graphs: *const *const OrtGraph,
    fused: *const *const OrtNode,
    count: usize,
    out: *mut *mut ComputeInfo,
    context_nodes: *mut *mut OrtNode,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`, which is the first field of the provider.
    let provider = unsafe { &*this.cast::<Provider>() };
    provider.host.guarded(|| {
        // SAFETY: ONNX Runtime passes `count` graphs, which live during this call.
        let graph = |number| unsafe { HostGraph::of(provider.host, *graphs.add(number)) };
        let graphs = (0..count).map(graph).collect::<Result<Vec<_>, _>>()?;
        provider.tune(&graphs)?;
        let source = provider.options.source()?;

        for (number, graph) in graphs.iter().enumerate() {
            let part = provider.compiled(graph, &source)?;
            // SAFETY: ONNX Runtime passes `count` nodes, which live during this call, and memory
            // for as many results.
            unsafe {
                if !context_nodes.is_null() {
                    let node = provider.context_node(graph, *fused.add(number), &part)?;
                    context_nodes.add(number).write(node);
                }
                let profiled = ProfiledPart::of(host_name(provider.host, *fused.add(number))?, &provider.profiles);
                out.add(number).write(CompiledPart::create(provider.host, part, profiled));
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn compatibility_info(this: *mut Ep, _: *const OrtGraph) -> *const c_char {
    // SAFETY: ONNX Runtime passes a table from `create`, and copies the text.
    unsafe { &*this.cast::<Provider>() }.compatibility.as_ptr()
}

/// Creates the profiler of a profile that the session writes.
unsafe extern "system" fn create_profiler(this: *mut Ep, out: *mut *mut ProfilerTable) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let provider = unsafe { &*this.cast::<Provider>() };
    provider.host.guarded(|| {
        // SAFETY: ONNX Runtime passes memory for the result.
        unsafe { out.write(Profiler::create(provider.host, Arc::clone(&provider.profiles))) };
        Ok(())
    })
}

unsafe extern "system" fn release_compute_infos(_: *mut Ep, infos: *mut *mut ComputeInfo, count: usize) {
    if count > 0 && !infos.is_null() {
        // SAFETY: ONNX Runtime passes tables from `compile`, and does not use them again.
        unsafe { slice::from_raw_parts(infos, count).iter().for_each(|&info| CompiledPart::release(info)) }
    }
}

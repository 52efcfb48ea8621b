//! EPContext nodes: nodes of ONNX Runtime with a part that a provider compiled earlier.

use std::ffi::{CString, c_char, c_int};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, ptr};

use autotune_network::printable;
use ort_sys::{OrtNode, OrtOpAttr, OrtOpAttrType};

use crate::attribute::HostAttribute;
use crate::factory::NAME;
use crate::graph::{HostGraph, HostNode};
use crate::host::{Host, ask};

/// Operator and domain of the nodes.
const OPERATOR: &str = "EPContext";
const DOMAIN: &str = "com.microsoft";

/// Settings of a session that makes such nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextSettings {
    /// True if the nodes have the contents, false if they have the names of files with them.
    pub(crate) is_embedded: bool,
    /// Path of the model with the nodes, if the session gives it.
    pub(crate) path: Option<PathBuf>,
}

/// True for nodes of any provider with a part that it compiled.
pub(crate) fn is_context(node: &HostNode) -> bool {
    node.operator == OPERATOR && node.domain == DOMAIN
}

/// True for nodes of this provider.
pub(crate) fn is_own(host: Host, node: &HostNode) -> Result<bool, String> {
    if !is_context(node) {
        return Ok(false);
    }
    // SAFETY: the node belongs to a graph of ONNX Runtime.
    let attributes = unsafe { HostAttribute::of_node(host, node.node) }?;
    let source = attributes.iter().find(|attribute| attribute.name == "source");
    let source = source.map(|source| source.bytes(host)).transpose()?.unwrap_or_default();
    Ok(without_zero(&source) == NAME.to_bytes())
}

/// Returns the contents of the node of this provider. `context_path` is the one that the session
/// gives for a model in memory.
pub(crate) fn contents(graph: &HostGraph, node: &HostNode, context_path: Option<&Path>) -> Result<Vec<u8>, String> {
    let host = graph.host;
    // SAFETY: the node belongs to the graph.
    let attributes = unsafe { HostAttribute::of_node(host, node.node) }?;
    let of = |name: &str| attributes.iter().find(|attribute| attribute.name == name);
    let given = of("ep_cache_context").ok_or("it has no attribute ep_cache_context")?.bytes(host)?;
    let is_embedded = of("embed_mode").map(|mode| mode.int(host)).transpose()?.flatten() != Some(0);
    if is_embedded {
        return Ok(given);
    }

    let name = str::from_utf8(without_zero(&given)).map_err(|_| "the name of its file is not a text")?;
    let is_normal = |part: Component| matches!(part, Component::Normal(_));
    if name.is_empty() || !Path::new(name).components().all(is_normal) {
        return Err(format!("'{}' does not name a file beside the model", printable(name)));
    }
    let path = folder(&graph.model_path()?, context_path)?.join(name);
    let located = |error: io::Error| format!("{}: {error}", path.display());
    // Reading a device or a pipe might not end.
    match fs::metadata(&path).map_err(located)?.is_file() {
        true => fs::read(&path).map_err(located),
        false => Err(format!("{} is not a file", path.display())),
    }
}

/// Returns the folder of the files with contents.
fn folder(model: &Path, context_path: Option<&Path>) -> Result<PathBuf, String> {
    let unknown = "a model in memory has no folder for its contents: set ep.context_file_path, or embed the contents with \
                   ep.context_embed_mode=1";
    let path = context_path.or(Some(model)).filter(|path| !path.as_os_str().is_empty()).ok_or(unknown)?;
    Ok(path.parent().unwrap_or(Path::new("")).to_path_buf())
}

/// Writes a file: readers get an old one or the whole new one, also if other processes write it.
fn write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    // The process's mask applies, as for other files.
    builder.permissions(Permissions::from_mode(0o666));
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut new = builder.tempfile_in(Path::new(".").join(folder))?;
    new.write_all(contents)?;
    new.persist(path)?;
    Ok(())
}

/// Returns a text without the zero byte that ONNX Runtime may add.
fn without_zero(text: &[u8]) -> &[u8] {
    text.strip_suffix(&[0]).unwrap_or(text)
}

impl ContextSettings {
    /// Creates the node that has the contents of a compiled graph, or names a new file with them.
    /// `inputs` and `outputs` are the graph's; the node is named like `fused`.
    ///
    /// # Safety
    ///
    /// The node belongs to ONNX Runtime and exists.
    pub(crate) unsafe fn node(
        &self,
        graph: &HostGraph,
        fused: *const OrtNode,
        [inputs, outputs]: [&[String]; 2],
        contents: &[u8],
    ) -> Result<*mut OrtNode, String> {
        let host = graph.host;
        // SAFETY: as for this function.
        let name = unsafe { HostNode::of(host, fused) }?.name;
        let written = match self.is_embedded {
            true => None,
            false => Some(self.write(&graph.model_path()?, &name, contents)?),
        };
        let given = written.as_ref().map_or(contents, |name| name.as_bytes());

        let mut attributes = OwnAttributes { host, attributes: Vec::new() };
        attributes.add_number("main_context", 1)?;
        attributes.add_number("embed_mode", i64::from(self.is_embedded))?;
        attributes.add_text("ep_cache_context", given)?;
        attributes.add_text("ep_sdk_version", env!("CARGO_PKG_VERSION").as_bytes())?;
        attributes.add_text("partition_name", name.as_bytes())?;
        attributes.add_text("source", NAME.to_bytes())?;
        attributes.node(&name, inputs, outputs)
    }

    /// Writes contents to a file beside the model with the nodes, and returns the file's name.
    fn write(&self, model: &Path, node: &str, contents: &[u8]) -> Result<String, String> {
        let folder = folder(model, self.path.as_deref())?;
        let of = self.path.as_deref().unwrap_or(model);
        let stem = of.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let name = format!("{stem}_{}.bin", node.chars().map(plain).collect::<String>());

        let path = folder.join(&name);
        write_whole(&path, contents).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(name)
    }
}

/// Attributes for a new node, released with this value.
struct OwnAttributes {
    host: Host,
    attributes: Vec<*mut OrtOpAttr>,
}

impl OwnAttributes {
    fn add_number(&mut self, name: &str, number: i64) -> Result<(), String> {
        self.add(name, (&raw const number).cast(), 1, OrtOpAttrType::ORT_OP_ATTR_INT)
    }

    fn add_text(&mut self, name: &str, text: &[u8]) -> Result<(), String> {
        self.add(name, text.as_ptr(), text.len(), OrtOpAttrType::ORT_OP_ATTR_STRING)
    }

    fn add(&mut self, name: &str, data: *const u8, count: usize, kind: OrtOpAttrType) -> Result<(), String> {
        let too_large =
            |_| format!("{name} has {count} bytes, more than an ONNX file can have: set ep.context_embed_mode=0");
        let (count, name) = (c_int::try_from(count).map_err(too_large)?, c_text(name)?);
        let mut attribute = ptr::null_mut();
        // SAFETY: the name and `count` elements exist during the call, which copies them.
        unsafe { ask!(self.host, CreateOpAttr(name.as_ptr(), data.cast(), count, kind, &mut attribute)) }?;
        self.attributes.push(attribute);
        Ok(())
    }

    /// Creates the node, which has copies of the attributes.
    fn node(&mut self, name: &str, inputs: &[String], outputs: &[String]) -> Result<*mut OrtNode, String> {
        let texts = |names: &[String]| names.iter().map(|name| c_text(name)).collect::<Result<Vec<_>, _>>();
        let (name, operator, domain) = (c_text(name)?, c_text(OPERATOR)?, c_text(DOMAIN)?);
        let (inputs, outputs) = (texts(inputs)?, texts(outputs)?);
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (inputs, outputs) = (pointers(&inputs), pointers(&outputs));

        let mut node = ptr::null_mut();
        // SAFETY: the table exists as long as the process, and all texts and attributes during the
        // call.
        unsafe {
            let editor = self.host.function(|api| (&raw const (*api).GetModelEditorApi).read())();
            let editor = editor.as_ref().ok_or("this ONNX Runtime cannot make EPContext nodes")?;
            let (count, attributes) = (self.attributes.len(), self.attributes.as_mut_ptr());
            self.host.check((editor.CreateNode)(
                operator.as_ptr(),
                domain.as_ptr(),
                name.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                outputs.as_ptr(),
                outputs.len(),
                attributes,
                count,
                &mut node,
            ))?;
        }
        Ok(node)
    }
}

impl Drop for OwnAttributes {
    fn drop(&mut self) {
        for &attribute in &self.attributes {
            // SAFETY: the attribute is of this value, and released once.
            unsafe { (self.host.function(|api| (&raw const (*api).ReleaseOpAttr).read()))(attribute) };
        }
    }
}

fn c_text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("'{}' has a zero byte", printable(text)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn files_are_whole_if_several_sessions_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part.bin");
        thread::scope(|scope| {
            for writer in 1..=4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_whole(path, &vec![writer; 100_000 * usize::from(writer)]).unwrap();
                        let read = fs::read(path).unwrap();
                        assert!(
                            read.len() == 100_000 * usize::from(read[0]) && read.iter().all(|byte| *byte == read[0])
                        );
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

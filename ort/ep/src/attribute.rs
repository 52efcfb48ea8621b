//! Attributes of ONNX Runtime's nodes.

use std::ffi::c_char;
use std::ptr;

use ort_sys::{OrtNode, OrtOpAttr, OrtOpAttrType};

use crate::host::{Host, ask, list, text};

/// Name and type of an attribute.
pub(crate) struct HostAttribute {
    pub(crate) attribute: *const OrtOpAttr,
    pub(crate) name: String,
    pub(crate) kind: OrtOpAttrType,
}

impl HostAttribute {
    /// Returns the attributes of a node.
    ///
    /// # Safety
    ///
    /// The node belongs to a graph of ONNX Runtime, which outlives the result.
    pub(crate) unsafe fn of_node(host: Host, node: *const OrtNode) -> Result<Vec<Self>, String> {
        let attributes = list(
            // SAFETY: as for this function.
            |out| unsafe { ask!(host, Node_GetNumAttributes(node, out)) },
            // SAFETY: as for this function.
            |out, count| unsafe { ask!(host, Node_GetAttributes(node, out, count)) },
        )?;
        let of = |attribute| {
            let (mut name, mut kind): (*const c_char, _) = (ptr::null(), OrtOpAttrType::ORT_OP_ATTR_UNDEFINED);
            // SAFETY: the attribute belongs to the node.
            unsafe {
                ask!(host, OpAttr_GetName(attribute, &mut name))?;
                ask!(host, OpAttr_GetType(attribute, &mut kind))?;
                Ok(Self { attribute, name: text(name), kind })
            }
        };
        attributes.into_iter().map(of).collect()
    }

    /// Returns the number, or the first one.
    pub(crate) fn int(&self, host: Host) -> Result<Option<i64>, String> {
        Ok(numbers(&self.bytes(host)?, i64::from_ne_bytes).first().copied())
    }

    /// Returns the bytes of the value: of numbers in the machine's order, or of a text. A text may
    /// end with a zero byte that is not a part of it.
    pub(crate) fn bytes(&self, host: Host) -> Result<Vec<u8>, String> {
        let (attribute, kind, mut needed) = (self.attribute, self.kind, 0);
        // Without room, the function fails and tells the number of bytes.
        // SAFETY: the attribute belongs to a node; nothing is written to the null pointer.
        let _ = unsafe { ask!(host, ReadOpAttr(attribute, kind, ptr::null_mut(), 0, &mut needed)) };
        if needed == 0 {
            return Ok(Vec::new());
        }

        if kind == OrtOpAttrType::ORT_OP_ATTR_STRING {
            let mut bytes = vec![0u8; needed];
            // SAFETY: there is room for the bytes.
            unsafe { ask!(host, ReadOpAttr(attribute, kind, bytes.as_mut_ptr().cast(), needed, &mut needed)) }?;
            return Ok(bytes);
        }
        // In words, as the bytes may be numbers of 8 bytes.
        let mut words = vec![0u64; needed.div_ceil(size_of::<u64>())];
        // SAFETY: there is room for the bytes.
        unsafe { ask!(host, ReadOpAttr(attribute, kind, words.as_mut_ptr().cast(), needed, &mut needed)) }?;
        Ok(words.into_iter().flat_map(u64::to_ne_bytes).take(needed).collect())
    }
}

/// Returns numbers from their bytes.
pub(crate) fn numbers<const SIZE: usize, T>(bytes: &[u8], of: fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| of(bytes)).collect()
}

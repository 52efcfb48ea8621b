//! Descriptions in a model's file.

use std::ffi::c_char;
use std::ptr;

use autotune_network::onnx::ModelMetadata;
use ort_sys::{OrtAllocator, OrtApi, OrtModelMetadata, OrtSession};

use crate::handle::{Handle, give, of, set, text};
use crate::memory::{allocated, text_in};
use crate::session::OpenModel;
use crate::status::{api_functions, release_functions};

struct Metadata {
    name: String,
    file: ModelMetadata,
}

impl Handle for Metadata {
    type Sys = OrtModelMetadata;
}

api_functions! {
    fn SessionGetModelMetadata(session: *const OrtSession, out: *mut *mut OrtModelMetadata) {
        let model: &OpenModel = of(session)?;
        give(out, Metadata { name: model.name.clone(), file: model.metadata.clone() })
    }

    fn ModelMetadataGetProducerName(
        metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) { set(out, text_in(allocator, &of::<Metadata>(metadata)?.file.producer)?) }

    fn ModelMetadataGetGraphName(
        metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) { set(out, text_in(allocator, &of::<Metadata>(metadata)?.name)?) }

    fn ModelMetadataGetDomain(
        _metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) { set(out, text_in(allocator, "")?) }

    fn ModelMetadataGetDescription(
        _metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) { set(out, text_in(allocator, "")?) }

    fn ModelMetadataGetVersion(_metadata: *const OrtModelMetadata, out: *mut i64) { set(out, 0) }

    fn ModelMetadataGetCustomMetadataMapKeys(
        metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        out: *mut *mut *mut c_char,
        count: *mut i64,
    ) {
        let properties = &of::<Metadata>(metadata)?.file.properties;
        let keys: *mut *mut c_char = match properties.len() {
            0 => ptr::null_mut(),
            count => allocated(allocator, size_of::<*mut c_char>() * count)?.cast(),
        };
        for (number, (key, _)) in properties.iter().enumerate() {
            keys.add(number).write(text_in(allocator, key)?);
        }
        set(out, keys)?;
        set(count, properties.len() as i64)
    }

    fn ModelMetadataLookupCustomMetadataMap(
        metadata: *const OrtModelMetadata,
        allocator: *mut OrtAllocator,
        key: *const c_char,
        out: *mut *mut c_char,
    ) {
        let key = text(key)?;
        let value = of::<Metadata>(metadata)?.file.properties.iter().find(|(known, _)| known == key);
        // An absent key is no failure: the result is null.
        set(out, value.map_or(Ok(ptr::null_mut()), |(_, value)| text_in(allocator, value))?)
    }
}

release_functions! { ReleaseModelMetadata(Metadata) }

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
}

//! The factory of the provider: its name, its devices, and the options of a session.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use autotune_db::EmptySource;
use autotune_ir::Target;
use autotune_network::{Waiting, printable};
use ort_autotune::text_options::TextOptions;
use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType, OrtKeyValuePairs, OrtLogger, OrtMemoryInfo,
    OrtSessionOptions, OrtStatusPtr,
};

use crate::abi::{Ep, EpFactory, VERSION};
use crate::compatibility::compatibility;
use crate::context_node::ContextSettings;
use crate::host::{Host, ask, text};
use crate::part::{PartSource, ProviderOptions};
use crate::provider::Provider;
use crate::tune::TuneOption;

/// Name of the provider.
pub(crate) const NAME: &CStr = c"AutotuneExecutionProvider";

/// Prefix of the provider's options in those of a session: its name in lower case.
const PREFIX: &str = "ep.autotuneexecutionprovider.";

/// The factory. ONNX Runtime knows its first field.
#[repr(C)]
pub(crate) struct Factory {
    table: EpFactory,
    host: Host,
}

impl Factory {
    pub(crate) fn create(host: Host) -> *mut EpFactory {
        let table = EpFactory {
            version: VERSION,
            name,
            vendor,
            supported_devices,
            create_ep,
            release_ep,
            vendor_id,
            library_version,
            validate_compiled,
            create_allocator,
            release_allocator,
            create_data_transfer,
            is_stream_aware,
            create_sync_stream,
        };
        Box::into_raw(Box::new(Self { table, host })).cast()
    }

    /// Releases a factory that is unregistered.
    ///
    /// # Safety
    ///
    /// The table is null or comes from [`create`](Self::create), and is not used again.
    pub(crate) unsafe fn release(factory: *mut EpFactory) {
        if !factory.is_null() {
            // SAFETY: as for this function; the table is the first field.
            drop(unsafe { Box::from_raw(factory.cast::<Self>()) });
        }
    }

    /// Reads the options of a session.
    ///
    /// # Safety
    ///
    /// The options come from ONNX Runtime.
    unsafe fn options(&self, options: *const OrtSessionOptions) -> Result<ProviderOptions, String> {
        // SAFETY: as for this function.
        let entries = unsafe { self.entries(options)? };
        let own = entries.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, &**value)));
        let mut given: BTreeMap<&str, &str> = own.collect();
        let tune = TuneOption::of(&given)?;
        if let TuneOption::Within(_) = &tune {
            // The database may be a new one.
            given.remove("db");
        }
        let TextOptions { source, precision, waiting } =
            TextOptions::of(&given, "", &["threads", "tune"]).map_err(|error| error.to_string())?;
        let source = match tune {
            TuneOption::Off => PartSource::Given(Some(Arc::new(EmptySource))),
            TuneOption::LookUp => PartSource::Given(source),
            TuneOption::Within(tuner) => PartSource::Tuned(tuner),
        };

        let threads = match given.get("threads") {
            None => None,
            Some(text) => {
                let wrong = |_| format!("option threads={}: expected a number", printable(text));
                Some(text.parse().map_err(wrong)?).filter(|&count: &usize| count > 0)
            }
        };
        let target = Target::detect("cpu", threads).map_err(|error| format!("option threads: {error}"))?;
        let set = |key: &str| entries.get(key).map(|value| &**value).filter(|value| !value.is_empty());
        let context_path = set("ep.context_file_path").map(PathBuf::from);
        let is_embedded = set("ep.context_embed_mode") == Some("1");
        let is_made = set("ep.context_enable") == Some("1");
        let context = is_made.then(|| ContextSettings { is_embedded, path: context_path.clone() });
        // ONNX Runtime's own threads need the cores between the parts of a model.
        let waiting = waiting.unwrap_or(Waiting::Briefly);
        Ok(ProviderOptions { target, source, precision, waiting, context, context_path })
    }

    /// Returns the configuration entries of a session.
    ///
    /// # Safety
    ///
    /// The options come from ONNX Runtime.
    unsafe fn entries(&self, options: *const OrtSessionOptions) -> Result<BTreeMap<String, String>, String> {
        let mut pairs = ptr::null_mut();
        let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: as for this function; the texts live until the pairs are released.
        unsafe {
            ask!(self.host, GetSessionOptionsConfigEntries(options, &mut pairs))?;
            let read = self.host.function(|api| (&raw const (*api).GetKeyValuePairs).read());
            read(pairs, &mut keys, &mut values, &mut count);
            let entry = |number| (text(*keys.add(number)), text(*values.add(number)));
            let entries = (0..count).map(entry).collect();
            (self.host.function(|api| (&raw const (*api).ReleaseKeyValuePairs).read()))(pairs);
            Ok(entries)
        }
    }
}

/// Returns the factory of a table.
///
/// # Safety
///
/// The table comes from [`Factory::create`], and is not released during `'a`.
unsafe fn factory<'a>(this: *const EpFactory) -> &'a Factory {
    // SAFETY: as for this function; the table is the first field.
    unsafe { &*this.cast::<Factory>() }
}

unsafe extern "system" fn name(_: *const EpFactory) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn vendor(_: *const EpFactory) -> *const c_char {
    c"autotune".as_ptr()
}

unsafe extern "system" fn vendor_id(_: *const EpFactory) -> u32 {
    0
}

unsafe extern "system" fn library_version(_: *const EpFactory) -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

unsafe extern "system" fn supported_devices(
    this: *mut EpFactory,
    devices: *const *const OrtHardwareDevice,
    count: usize,
    out: *mut *mut OrtEpDevice,
    most: usize,
    out_count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let host = unsafe { factory(this) }.host;
    host.guarded(|| {
        let mut found = 0;
        for number in 0..count {
            // SAFETY: ONNX Runtime passes `count` devices, memory for `most` results, and a factory
            // of its own.
            unsafe {
                let device = *devices.add(number);
                let kind = (host.function(|api| (&raw const (*api).HardwareDevice_Type).read()))(device);
                if kind == OrtHardwareDeviceType::OrtHardwareDeviceType_CPU && found < most {
                    let created = (host.ep.create_ep_device)(this, device, ptr::null(), ptr::null(), out.add(found));
                    host.check(created)?;
                    found += 1;
                }
            }
        }
        // SAFETY: ONNX Runtime passes memory for the number.
        unsafe { out_count.write(found) };
        Ok(())
    })
}

unsafe extern "system" fn create_ep(
    this: *mut EpFactory,
    _devices: *const *const OrtHardwareDevice,
    _metadata: *const *const OrtKeyValuePairs,
    _count: usize,
    options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    out: *mut *mut Ep,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let factory = unsafe { factory(this) };
    factory.host.guarded(|| {
        // SAFETY: the options live during this call, and there is memory for the result.
        unsafe { out.write(Provider::create(factory.host, factory.options(options)?, logger)) };
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_: *mut EpFactory, ep: *mut Ep) {
    // SAFETY: ONNX Runtime releases a provider of this factory, once.
    unsafe { Provider::release(ep) }
}

unsafe extern "system" fn validate_compiled(
    this: *mut EpFactory,
    _devices: *const *const OrtHardwareDevice,
    _count: usize,
    info: *const c_char,
    out: *mut c_int,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let host = unsafe { factory(this) }.host;
    host.guarded(|| {
        // SAFETY: ONNX Runtime passes a text, and memory for the result.
        unsafe { out.write(compatibility(&text(info)) as c_int) };
        Ok(())
    })
}

/// Leaves tensors in memory of ONNX Runtime's allocator.
unsafe extern "system" fn create_allocator(
    _: *mut EpFactory,
    _info: *const OrtMemoryInfo,
    _options: *const OrtKeyValuePairs,
    out: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes memory for the result.
    unsafe { out.write(ptr::null_mut()) };
    OrtStatusPtr::default()
}

unsafe extern "system" fn release_allocator(_: *mut EpFactory, _: *mut OrtAllocator) {}

unsafe extern "system" fn create_data_transfer(_: *mut EpFactory, out: *mut *mut c_void) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes memory for the result.
    unsafe { out.write(ptr::null_mut()) };
    OrtStatusPtr::default()
}

unsafe extern "system" fn is_stream_aware(_: *const EpFactory) -> bool {
    false
}

unsafe extern "system" fn create_sync_stream(
    _: *mut EpFactory,
    _device: *const c_void,
    _options: *const OrtKeyValuePairs,
    out: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes memory for the result.
    unsafe { out.write(ptr::null_mut()) };
    OrtStatusPtr::default()
}

//! Support of workloads by targets.

use autotune_ir::DType;
use autotune_ir::Target;
use autotune_workloads::Workload;
use thiserror::Error;

/// CUDA targets that differ in element types, in order of compute capability.
const CUDA: [&str; 2] = ["cuda:sm_70", "cuda:sm_80"];

/// Reason that a target does not support a workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum Unsupported {
    /// The target has no kernels for an element type.
    #[error(
        "{operator}: field '{field}': no kernels with {field}={} on {target}, which supports {}{}",
        .dtype.word(), words(.supported), elsewhere(*.dtype)
    )]
    DType {
        /// Name of the workload's operator.
        operator: &'static str,
        /// Field of the workload with the type: `dtype` of the operands, or `to` of the result.
        field: &'static str,
        dtype: DType,
        /// Key of the target.
        target: String,
        /// Element types that the target supports.
        supported: Vec<DType>,
    },
    /// Uncached constants ([`Workload::is_cold`]) on a target other than a CPU.
    #[error("{workload}: cannot time cold runs on {target}, only on CPUs")]
    Cold {
        workload: Box<Workload>,
        /// Key of the target.
        target: String,
    },
    /// Part of a network ([`Workload::network`]), which is not measured on its own.
    #[error("{workload}: cannot measure a part of a network on its own: remove 'within', or tune the network")]
    Within { workload: Box<Workload> },
}

/// Fails for the first workload for which the target has no kernels
/// ([`Workload::unsupported_dtype`]), or whose kernels cannot be measured on it.
///
/// ```
/// use autotune::check_supported;
/// use autotune_ir::Target;
/// let workloads = ["matmul:m=64,n=64,k=64,dtype=f16".parse()?];
/// assert!(check_supported(&workloads, &Target::detect("cuda:sm_90", None)?).is_ok());
/// assert!(check_supported(&workloads, &Target::detect("opencl", None)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_supported(workloads: &[Workload], target: &Target) -> Result<(), Unsupported> {
    let mut lacking = workloads.iter().filter_map(|workload| Some((workload, workload.unsupported_dtype(target)?)));
    if let Some((workload, (field, dtype))) = lacking.next() {
        let is_cast = field == "to" || workload.operator().is_cast();
        let is_contraction = workload.spec().is_contraction();
        let moves_bytes = workload.operator().moves_bytes();
        let has = |&dtype: &DType| match (is_contraction, is_cast) {
            (true, _) => target.multiplies(dtype),
            _ if dtype.is_integer() => moves_bytes && dtype.bytes() == 1 && target.multiplies(dtype),
            (false, true) => target.supports_cast(dtype),
            (false, false) => target.supports(dtype),
        };

        return Err(Unsupported::DType {
            operator: workload.operator().kind().name,
            field,
            dtype,
            target: target.key(),
            supported: DType::ALL.into_iter().filter(has).collect(),
        });
    }

    if let Some(within) = workloads.iter().find(|workload| workload.network().is_some()) {
        return Err(Unsupported::Within { workload: Box::new(within.clone()) });
    }
    match workloads.iter().find(|workload| workload.is_cold() && target.cpu().is_none()) {
        Some(cold) => Err(Unsupported::Cold { workload: Box::new(cold.clone()), target: target.key() }),
        None => Ok(()),
    }
}

fn words(dtypes: &[DType]) -> String {
    dtypes.iter().map(|dtype| dtype.word()).collect::<Vec<_>>().join(", ")
}

/// Returns a hint at the first CUDA target that supports the type, if any.
fn elsewhere(dtype: DType) -> String {
    let supports = |word: &&str| Target::detect(word, None).is_ok_and(|target| target.supports(dtype));
    let first = CUDA.into_iter().find(supports);
    first.map_or(String::new(), |word| format!("; {} needs --target cuda, {word} or newer", dtype.word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_what_can() {
        let text = |word: &str, dtype: &str| {
            let workload: Workload = format!("matmul:m=8,n=8,k=8,dtype={dtype}").parse().unwrap();
            check_supported(&[workload], &Target::detect(word, None).unwrap()).map_err(|error| error.to_string())
        };
        let expected = "matmul: field 'dtype': no kernels with dtype=bf16 on cuda:sm_70:any, which supports f32, f16; bf16 \
                        needs --target cuda, cuda:sm_80 or newer";
        assert_eq!(text("cuda:sm_70", "bf16").unwrap_err(), expected);
        assert!(
            text("opencl", "f16").unwrap_err().ends_with("supports f32; f16 needs --target cuda, cuda:sm_70 or newer")
        );
        assert!(text("cpu", "tf32").unwrap_err().contains("supports f32, bf16, i8, u8, i32; tf32"));
        assert!(text("opencl", "i8").unwrap_err().ends_with("supports f32"));
        for (word, dtype) in [
            ("cpu", "f32"),
            ("cpu", "bf16"),
            ("cpu", "i8"),
            ("opencl", "f32"),
            ("cuda:sm_75", "f16"),
            ("cuda:sm_90", "tf32"),
        ] {
            assert_eq!(text(word, dtype), Ok(()));
        }

        let cast = |word: &str, cast: &str| {
            let workload: Workload = format!("pointwise:m=8,n=8,op=copy,{cast}").parse().unwrap();
            check_supported(&[workload], &Target::detect(word, None).unwrap()).map_err(|error| error.to_string())
        };
        for (word, to) in [("cpu", "to=f16"), ("cpu", "to=bf16"), ("opencl", "to=bf16"), ("cuda:sm_70", "to=f16")] {
            assert_eq!(cast(word, to), Ok(()));
        }
        let refused = "pointwise: field 'to': no kernels with to=bf16 on cuda:sm_70:any, which supports f32, f16; bf16";
        assert!(cast("cuda:sm_70", "to=bf16").unwrap_err().starts_with(refused));
        assert_eq!(cast("cpu", "dtype=f16,to=bf16"), Ok(()));
        let refused = "pointwise: field 'dtype': no kernels with dtype=tf32";
        assert!(cast("cpu", "dtype=tf32").unwrap_err().starts_with(refused));

        let cold = ["matmul:m=8,n=8,k=8,cold".parse().unwrap()];
        assert_eq!(check_supported(&cold, &Target::detect("cpu", None).unwrap()), Ok(()));
        let refused = check_supported(&cold, &Target::detect("cuda:sm_80", None).unwrap()).unwrap_err().to_string();
        let within = ["matmul:m=8,n=8,k=8,within=1".parse().unwrap()];
        let refused_within = check_supported(&within, &Target::detect("cpu", None).unwrap()).unwrap_err().to_string();
        assert!(refused_within.contains("remove 'within'"), "{refused_within}");
        assert_eq!(refused, "matmul:m=8,n=8,k=8,cold: cannot time cold runs on cuda:sm_80:any, only on CPUs");
    }
}

//! Comparison and checksums of a device's memory after kernels ran.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use autotune_ir::DType;
use autotune_measurement::CandidateError;
use autotune_runtime::{Device, bytes_of_mut};

mod kernels;

pub(crate) use kernels::KernelChecks;

/// Words per block, the unit in which threads divide memory.
const BLOCK: usize = 4096;

/// Comparison and checksum of memories of a device.
pub(crate) trait Checks<D: Device> {
    /// Returns the largest difference between the first `len` elements of two memories. Infinite if
    /// an element of `actual` is not finite and not equal to the expected one.
    fn difference(
        &self,
        device: &D,
        actual: &D::Memory,
        expected: &D::Memory,
        dtype: DType,
        len: usize,
    ) -> Result<f32, CandidateError>;

    /// Returns a position-dependent checksum of the first words of a memory. A change of a single
    /// word always changes it, any other change almost certainly. `None` if there are too many
    /// words to sum.
    fn checksum(&self, device: &D, memory: &D::Memory, words: usize) -> Result<Option<u64>, CandidateError>;
}

/// Checks by threads of the host: in place if the memory is the host's, else on a copy.
pub(crate) struct HostChecks;

impl<D: Device> Checks<D> for HostChecks {
    fn difference(
        &self,
        device: &D,
        actual: &D::Memory,
        expected: &D::Memory,
        dtype: DType,
        len: usize,
    ) -> Result<f32, CandidateError> {
        let words = (len * dtype.bytes()).div_ceil(4);
        let in_words = dtype.bytes() == 4;
        with_words(device, actual, words, |actual| {
            with_words(device, expected, words, |expected| {
                if in_words && dtype.is_integer() {
                    return largest(device, len, |part| whole_difference(&actual[part.clone()], &expected[part]));
                }
                if in_words {
                    return largest(device, len, |part| bits_difference(&actual[part.clone()], &expected[part]));
                }
                let (actual, expected) = (dtype.values(actual, len), dtype.values(expected, len));
                largest(device, len, |part| difference(&actual[part.clone()], &expected[part]))
            })
        })?
    }

    fn checksum(&self, device: &D, memory: &D::Memory, words: usize) -> Result<Option<u64>, CandidateError> {
        with_words(device, memory, words, |words| Some(checksum(device, words)))
    }
}

/// Calls `work` with the first words of a memory, in place if possible, else on a copy.
fn with_words<D: Device, T>(
    device: &D,
    memory: &D::Memory,
    words: usize,
    work: impl FnOnce(&[u32]) -> T,
) -> Result<T, CandidateError> {
    if let Some(bytes) = device.host_bytes(memory) {
        // SAFETY: any four bytes are a valid `u32`.
        let (before, found, _) = unsafe { bytes.align_to::<u32>() };
        if before.is_empty() && found.len() >= words {
            return Ok(work(&found[..words]));
        }
    }
    let mut found = vec![0; words];
    device.read(memory, 0, bytes_of_mut(&mut found))?;
    Ok(work(&found))
}

/// Returns the maximum of `of_part` over the blocks of `0..len`.
fn largest<D: Device>(device: &D, len: usize, of_part: impl Fn(Range<usize>) -> f32 + Sync) -> f32 {
    // Stored as bits: bit patterns of nonnegative floats compare like the floats.
    let worst = AtomicU32::new(0);
    device.divide(len.div_ceil(BLOCK), &|blocks: Range<usize>| {
        let parts = blocks.map(|block| BLOCK * block..len.min(BLOCK * (block + 1)));
        worst.fetch_max(parts.map(&of_part).fold(0.0, f32::max).to_bits(), Ordering::Relaxed);
    });
    f32::from_bits(worst.into_inner())
}

/// Returns the largest difference between 32-bit integers, computed exactly and then rounded to
/// f32: 0 only if all are equal.
fn whole_difference(actual: &[u32], expected: &[u32]) -> f32 {
    let difference = |(&a, &e): (&u32, &u32)| (a as i32).abs_diff(e as i32);
    actual.iter().zip(expected).map(difference).max().unwrap_or(0) as f32
}

fn bits_difference(actual: &[u32], expected: &[u32]) -> f32 {
    largest_difference(actual, expected, |&word| f32::from_bits(word))
}

fn difference(actual: &[f32], expected: &[f32]) -> f32 {
    largest_difference(actual, expected, |&value| value)
}

/// Returns the largest difference between elements; infinite if one of `actual` is not finite and
/// not equal to the expected one.
fn largest_difference<T>(actual: &[T], expected: &[T], value: impl Fn(&T) -> f32) -> f32 {
    /// Independent maxima, so that the loop can be vectorised.
    const LANES: usize = 16;
    let (mut worst, mut odd) = ([0.0f32; LANES], [false; LANES]);
    let mut look = |actual: &[T], expected: &[T]| {
        for (lane, (a, e)) in actual.iter().zip(expected).enumerate() {
            let (a, e) = (value(a), value(e));
            let difference = if a == e { 0.0 } else { (a - e).abs() };
            worst[lane] = if difference > worst[lane] { difference } else { worst[lane] };
            odd[lane] |= !difference.is_finite();
        }
    };

    let (actual, expected) = (actual.chunks_exact(LANES), expected.chunks_exact(LANES));
    look(actual.remainder(), expected.remainder());
    actual.zip(expected).for_each(|(a, e)| look(a, e));
    if odd.contains(&true) { f32::INFINITY } else { worst.into_iter().fold(0.0, f32::max) }
}

/// Returns the sum of block checksums, each weighted by the block's odd position. A single changed
/// word always changes it.
fn checksum<D: Device>(device: &D, words: &[u32]) -> u64 {
    let sum = AtomicU64::new(0);
    device.divide(words.len().div_ceil(BLOCK), &|blocks: Range<usize>| {
        let of_block = |block: usize| {
            let end = words.len().min((block + 1) * BLOCK);
            block_checksum(&words[block * BLOCK..end]).wrapping_mul(2 * block as u64 + 1)
        };
        sum.fetch_add(blocks.map(of_block).fold(0, u64::wrapping_add), Ordering::Relaxed);
    });
    sum.into_inner()
}

/// Returns the checksum of one block: Fletcher sums (*An arithmetic checksum for serial
/// transmissions*, 1982) per lane, so that the loop can be vectorised, then a hash of the lanes'
/// sums.
fn block_checksum(words: &[u32]) -> u64 {
    const LANES: usize = 32;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut sums, mut sums_of_sums) = ([0u32; LANES], [0u32; LANES]);
    let rows = words.chunks_exact(LANES);
    let rest = rows.remainder();
    for row in rows {
        for ((sum, of_sums), word) in sums.iter_mut().zip(&mut sums_of_sums).zip(row) {
            *sum = sum.wrapping_add(*word);
            *of_sums = of_sums.wrapping_add(*sum);
        }
    }
    let lanes = sums.iter().zip(&sums_of_sums).map(|(&sum, &of_sums)| u64::from(sum) << 32 | u64::from(of_sums));
    let rest = rest.iter().map(|&word| u64::from(word));
    lanes.chain(rest).fold(0, |hash, x| (hash ^ x).wrapping_mul(ODD).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_runtime::Cpu;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Covers values beyond 2^24, where f32 rounds, and both signs.
    #[test]
    fn integers_are_compared_exactly() {
        let cpu = Cpu::new(1);
        for value in [0, -1, 7, 1 << 24, (1 << 24) + 1, i32::MAX, i32::MIN] {
            let upload =
                |elements: &[i32]| cpu.upload(&elements.iter().map(|&x| x as u32).collect::<Vec<_>>()).unwrap();
            let difference =
                |other: i32| HostChecks.difference(&cpu, &upload(&[3, other]), &upload(&[3, value]), DType::I32, 2);
            assert_eq!(difference(value), Ok(0.0), "{value}");
            assert_eq!(difference(value ^ 1), Ok(1.0), "{value}");
        }
        let ends = [i32::MIN as u32, i32::MAX as u32].map(|word| cpu.upload(&[word]).unwrap());
        let difference = HostChecks.difference(&cpu, &ends[0], &ends[1], DType::I32, 1);
        assert_eq!(difference, Ok(u32::MAX as f32));
    }

    #[test]
    fn one_differing_element_is_found_wherever_it_is() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let cpu = Cpu::new(2);
        for len in [1, 2, 15, 16, 17, 33, 4096, 4097, 13_000] {
            let elements: Vec<f32> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
            let expected = cpu.upload(&elements).unwrap();
            let difference_of = |changed: &[f32]| {
                HostChecks.difference(&cpu, &cpu.upload(changed).unwrap(), &expected, DType::F32, len).unwrap()
            };
            assert_eq!(difference_of(&elements), 0.0);
            for _ in 0..20 {
                let at = rng.random_range(0..len);
                let difference_with = |value: f32| {
                    let mut changed = elements.clone();
                    changed[at] = value;
                    difference_of(&changed)
                };
                assert!((difference_with(elements[at] + 3.0) - 3.0).abs() < 1e-6, "{len}: {at}");
                for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    assert_eq!(difference_with(odd), f32::INFINITY, "{len}: {at}");
                }
            }
        }
    }
}

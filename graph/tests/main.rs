//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "common/build.rs"]
mod build;
mod builder;
mod common;
mod evaluate;
mod evaluate_images;
mod evaluate_indices;
mod onnx_einsum;
mod onnx_elements;
mod onnx_export;
mod onnx_grouped_heads;
mod onnx_inputs;
mod onnx_losses;
mod onnx_numbers;
mod onnx_regions;
mod onnx_resize;
mod onnx_runtime;
mod onnx_sequences;
mod onnx_signal;
mod rewrite_affine;
mod rewrite_bounds;
mod rewrite_functions;
mod rewrite_movement;
mod rewrite_patterns;
mod rewrite_products;

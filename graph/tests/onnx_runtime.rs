//! Operators of ONNX Runtime's domain, compared with what ONNX Runtime 1.31 computes.

use autotune_graph::operators::Cast;
use autotune_graph::{DType, Operator, Tensor, rewrite};
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, difference, f32s, float, floats, i64s, int, ints, word};
use crate::common::graphs::ops;

/// Returns numbers from -1.25 to 1.25 that differ by seed.
pub(crate) fn ramp(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    f32s(shape, &(0..count).map(|i| ((i * 7 + seed * 3) % 11) as f32 / 4.0 - 1.25).collect::<Vec<_>>())
}

pub(crate) fn integers(shape: &[usize], numbers: &[i64]) -> Tensor {
    Tensor::i64(shape, numbers.to_vec()).unwrap()
}

/// Returns a model of one node. Inputs of f32 are those of the model, others are constants, and
/// `None` is an absent input.
pub(crate) fn model(
    operator: &str,
    inputs: &[Option<Tensor>],
    outputs: &str,
    attributes: Vec<AttributeProto>,
) -> Model {
    let mut model = Model::new(17);
    let mut names = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let name = format!("x{index}");
        match input {
            Some(Tensor::F32(array)) => model = model.input(&name, array.shape()),
            Some(constant) => model = model.constant(&name, constant),
            None => {}
        }
        names.push(if input.is_some() { name } else { "_".into() });
    }
    model = model.node(operator, &names.join(" "), outputs, attributes);
    model.graph().node[0].domain = Some("com.microsoft".into());
    outputs.split_whitespace().filter(|name| *name != "_").fold(model, Model::output)
}

pub(crate) fn of_runtime(model: &Model, inputs: &[Option<Tensor>]) -> Vec<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().flatten().filter(|x| x.as_f32().is_some()).cloned().collect();
    model.run(&inputs)
}

/// Fails unless a node computes these numbers, an output in each row.
fn check(operator: &str, inputs: &[Option<Tensor>], outputs: &str, attributes: Vec<AttributeProto>, wanted: &[&[f32]]) {
    let found = of_runtime(&model(operator, inputs, outputs, attributes), inputs);
    assert_eq!(found.len(), wanted.len(), "{operator}");
    for (found, wanted) in found.iter().zip(wanted) {
        let found = found.to_numbers();
        assert_eq!(found.len(), wanted.len(), "{operator}");
        for (at, (found, wanted)) in found.iter().zip(*wanted).enumerate() {
            assert!(
                (found - wanted).abs() <= 4e-6 * wanted.abs().max(1.0),
                "{operator} at {at}: {found}, not {wanted}"
            );
        }
    }
}

#[test]
fn activations() {
    let (x, bias) = (Some(ramp(&[2, 4], 1)), Some(ramp(&[4], 2)));

    check(
        "Gelu",
        std::slice::from_ref(&x),
        "y",
        vec![],
        &[&[-0.154269, 1.117938, 0.149677, -0.16997, 0.841345, 0.0, -0.158655, 0.580029]],
    );
    check(
        "QuickGelu",
        std::slice::from_ref(&x),
        "y",
        vec![],
        &[&[-0.149612, 1.116934, 0.1512, -0.16361, 0.845796, 0.0, -0.154204, 0.58639]],
    );
    check(
        "BiasGelu",
        &[x.clone(), bias.clone()],
        "y",
        vec![],
        &[&[-0.100323, 0.345731, 1.117938, -0.16997, 1.117938, -0.16997, 0.0, 0.580029]],
    );
    check(
        "FastGelu",
        &[x, bias],
        "y",
        vec![],
        &[&[-0.100325, 0.345714, 1.117714, -0.170039, 1.117714, -0.170039, 0.0, 0.579961]],
    );
}

#[test]
fn sums_that_are_normalised() {
    let (x, skip) = (ramp(&[1, 2, 4], 1), ramp(&[1, 2, 4], 2));
    let [scale, beta, bias] = [3, 4, 5].map(|seed| Some(ramp(&[4], seed)));
    let eps = || vec![float("epsilon", 1e-2)];
    let inputs = [Some(x.clone()), Some(skip.clone()), scale.clone(), beta, bias.clone()];
    check(
        "SkipLayerNormalization",
        &inputs,
        "y _ _ z",
        eps(),
        &[
            &[-1.270543, 0.75, -1.927367, -1.939885, 0.263228, 0.75, 0.171076, -2.197421],
            &[-0.5, -0.75, 1.75, -1.25, -0.25, -0.5, -0.75, -1.0],
        ],
    );
    let inputs = [Some(x.clone()), Some(skip.clone()), scale.clone(), bias];
    check(
        "SkipSimplifiedLayerNormalization",
        &inputs,
        "y _ _ z",
        eps(),
        &[
            &[-0.427276, -0.0, -1.495467, -0.801143, -0.361315, -0.0, 1.083944, -1.083944],
            &[-0.5, -0.75, 1.75, -1.25, -0.25, -0.5, -0.75, -1.0],
        ],
    );
    let inputs = [Some(x.clone()), scale.clone()];
    check(
        "SimplifiedLayerNormalization",
        &inputs,
        "y",
        eps(),
        &[&[-0.635321, 0.0, -0.317661, -0.714736, 1.239751, 0.0, 1.239751, 0.69736]],
    );

    // By default nearly nothing is added to a variance.
    let [x, skip] = [x, skip].map(|x| Tensor::F32(x.as_f32().unwrap().mapv(|x| x * 1e-4)));
    check(
        "SkipLayerNormalization",
        &[Some(x), Some(skip), scale],
        "y",
        vec![],
        &[&[-0.5773, 0.0, -1.402014, -0.927804, 0.342965, 0.0, 1.37186, -0.257224]],
    );
}

#[test]
fn products_and_convolutions() {
    let inputs = [Some(ramp(&[2, 3, 2], 1)), Some(ramp(&[2, 4, 3], 2))];
    let attributes = vec![int("transA", 1), int("transB", 1), float("alpha", 0.5)];
    check(
        "FusedMatMul",
        &inputs,
        "y",
        attributes,
        &[&[
            0.34375, 0.25, 0.15625, 0.40625, 0.4375, 0.375, 0.3125, -0.78125, 0.25, 0.34375, 0.4375, -0.84375,
            -0.90625, -0.78125, -0.65625, 0.5,
        ]],
    );

    let [x, w] = [ramp(&[1, 2, 3, 3], 1), ramp(&[2, 2, 2, 2], 2)].map(Some);
    let leaky = vec![word("activation", "LeakyRelu"), floats("activation_params", &[0.1])];
    check(
        "FusedConv",
        &[x.clone(), w.clone()],
        "y",
        leaky,
        &[&[-0.08125, 1.125, -0.325, 1.4375, -0.0375, 1.625, -0.2625, 1.4375]],
    );
    let inputs = [x, w, Some(ramp(&[2], 3)), Some(ramp(&[1, 2, 2, 2], 4))];
    check(
        "FusedConv",
        &inputs,
        "y",
        vec![word("activation", "Relu")],
        &[&[0.0, 2.875, 0.0, 1.1875, 0.125, 1.125, 0.0, 1.6875]],
    );
}

#[test]
fn rotations() {
    let [cosines, sines] = [3, 4].map(|seed| Some(ramp(&[4, 2], seed)));
    let positions = Some(integers(&[1, 3], &[1, 3, 0]));
    let x = Some(ramp(&[1, 3, 8], 1));

    let inputs = [x.clone(), positions.clone(), cosines.clone(), sines.clone()];
    check(
        "RotaryEmbedding",
        &inputs,
        "y",
        vec![],
        &[&[
            0.5625, 0.0, -0.125, -2.125, -1.25, 0.9375, 0.75, 0.5625, -0.75, 0.75, -0.0625, -0.0625, 1.5625, -0.375,
            1.1875, -0.4375, 0.75, 0.1875, 0.75, -0.75, -1.75, -0.9375, 0.75, 0.375,
        ]],
    );
    let inputs = [x, Some(i64s(&[1])), cosines.clone(), sines.clone()];
    check(
        "RotaryEmbedding",
        &inputs,
        "y",
        vec![int("interleaved", 1)],
        &[&[
            0.8125, -1.125, -0.75, -0.875, -1.0, -0.25, 0.1875, 1.8125, 0.6875, 0.1875, -0.875, 0.375, -0.4375, 0.5625,
            1.4375, -0.875, 1.25, -0.5, -0.3125, 0.3125, -1.25, -1.3125, -0.0625, -0.75,
        ]],
    );
    let inputs = [Some(ramp(&[1, 2, 3, 6], 1)), positions, cosines, sines];
    let attributes = vec![int("num_heads", 2), int("rotary_embedding_dim", 4)];
    check(
        "RotaryEmbedding",
        &inputs,
        "y",
        attributes,
        &[&[
            0.5625, 0.0, -0.125, -2.125, 1.0, 0.0, -0.1875, -0.0625, -1.375, 0.8125, 0.5, -0.5, 0.5, -0.75, -2.0,
            0.1875, 0.0, -1.0, -1.0625, 0.4375, 1.0625, 0.6875, -0.5, 1.25, -1.125, 0.375, 0.8125, -0.1875, -1.0, 0.75,
            0.25, 0.375, 0.75, -0.9375, 1.25, 0.25,
        ]],
    );
}

#[test]
fn attention_of_projections() {
    let [q, k, v] = [ramp(&[1, 2, 4], 1), ramp(&[1, 3, 4], 2), ramp(&[1, 3, 6], 3)].map(Some);
    let heads = || int("num_heads", 2);
    check(
        "MultiHeadAttention",
        &[q.clone(), k.clone(), v.clone()],
        "y",
        vec![heads()],
        &[&[
            0.491139, -0.508861, 0.897369, 0.262186, -0.737815, 0.219936, 0.462908, -0.537092, 0.157869, 0.256746,
            -0.743254, 0.148459,
        ]],
    );
    let mask = Some(integers(&[1, 3], &[1, 0, 1]));
    let inputs = [q.clone(), k, v, Some(ramp(&[14], 4)), mask, Some(ramp(&[1, 2, 2, 3], 5))];
    check(
        "MultiHeadAttention",
        &inputs,
        "y",
        vec![heads(), float("scale", 0.7)],
        &[&[
            -0.447938, 0.302062, 0.221392, -0.848688, -0.098688, -0.452297, -0.457081, 0.292919, 0.237392, -0.859152,
            -0.109152, -0.433984,
        ]],
    );

    let [k, v] = [ramp(&[1, 2, 4], 2), ramp(&[1, 2, 4], 3)].map(Some);
    let [past_k, past_v] = [ramp(&[1, 2, 1, 2], 6), ramp(&[1, 2, 1, 2], 7)].map(Some);
    let inputs = [q, k, v, None, None, None, past_k, past_v];
    let wanted: [&[f32]; 3] = [
        &[1.133274, 0.133274, -0.880521, 0.869479, 0.916315, -0.083685, -0.341421, 0.338048],
        &[0.5, -0.5, 0.25, -0.75, -1.0, 0.75, 1.25, 0.25, 1.0, 0.0, -0.25, -1.25],
        &[1.25, 0.25, 1.0, 0.0, -0.25, -1.25, -0.75, 1.0, -1.0, 0.75, 0.5, -0.5],
    ];
    check("MultiHeadAttention", &inputs, "y k v", vec![heads(), int("unidirectional", 1)], &wanted);
}

#[test]
fn attention_with_projections() {
    let [x, weights, bias] = [ramp(&[2, 3, 4], 1), ramp(&[4, 12], 2), ramp(&[12], 3)].map(Some);
    let heads = || int("num_heads", 2);
    let inputs = [x.clone(), weights.clone(), bias.clone()];
    check(
        "Attention",
        &inputs,
        "y",
        vec![heads(), int("unidirectional", 1)],
        &[&[
            0.5, 2.6875, -2.0, 0.1875, 0.501716, 2.65318, -0.206422, 0.215525, 0.520306, 2.647428, 0.278929, 0.22394,
            1.0625, -1.0, 2.4375, 0.375, 2.604267, -0.629976, 2.432587, 0.377456, 1.201291, -0.522488, 1.210841,
            0.598112,
        ]],
    );
    let inputs = |mask| [x.clone(), weights.clone(), bias.clone(), Some(mask)];
    check(
        "Attention",
        &inputs(integers(&[2, 3], &[1, 1, 0, 0, 1, 1])),
        "y",
        vec![heads()],
        &[&[
            0.686915, -1.050806, 0.304218, 0.223503, 0.501716, 2.65318, -0.206422, 0.215525, 0.500051, 2.68648,
            0.279889, 0.223123, 1.924594, -0.334588, -1.801216, 2.475738, 0.800047, 0.131688, -0.562507, -0.187485,
            1.327825, -0.087147, -1.125556, 1.02307,
        ]],
    );
    check(
        "Attention",
        &inputs(i64s(&[2, 3])),
        "y",
        vec![heads()],
        &[&[
            0.686915, -1.050806, 0.304218, 0.223503, 0.501716, 2.65318, -0.206422, 0.215525, 0.500051, 2.68648,
            0.279889, 0.223123, 1.914602, -0.3423, -1.746376, 2.448559, 0.801058, 0.127325, -0.548255, -0.184813,
            1.201291, -0.522488, 1.210841, 0.598112,
        ]],
    );

    let mask = integers(&[2, 3, 3], &(0..18).map(|i| i64::from(i % 3 != 1)).collect::<Vec<_>>());
    let [weights, bias, added] = [ramp(&[4, 14], 2), ramp(&[14], 3), ramp(&[2, 2, 3, 3], 6)].map(Some);
    let attributes = vec![heads(), ints("qkv_hidden_sizes", &[4, 4, 6])];
    check(
        "Attention",
        &[x.clone(), weights, bias, Some(mask), None, added],
        "y",
        attributes,
        &[&[
            0.940779, 1.430578, -2.17657, 1.163511, -1.681195, -0.900879, 0.981448, 1.344722, -2.041009, 1.150701,
            -1.444213, -1.048192, 0.95953, 1.390991, -2.114065, 1.180748, -2.000079, -0.702653, 0.665289, -0.653616,
            -1.095532, 0.801608, 1.396784, -0.206371, 0.504487, -0.589295, -1.425176, 0.560764, 1.878473, -0.836272,
            1.676964, -1.058286, 0.978402, 0.49451, 2.010979, -1.00955,
        ]],
    );
}

/// Returns bytes that differ by seed.
fn bytes(shape: &[usize], [factor, first]: [usize; 2]) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<i64> = (0..count).map(|at| ((at * factor + first) % 256) as i64).collect();
    Cast(DType::U8).evaluate(&[&integers(shape, &numbers)]).unwrap()
}

#[test]
fn weights_in_blocks() {
    let x = ramp(&[2, 20], 1);
    let scales: Vec<f32> = ramp(&[6], 4).to_numbers().iter().map(|x| x.abs() + 0.25).collect();
    let four_zeros = f32s(&[3, 2], &ramp(&[6], 6).to_numbers().iter().map(|x| x * 4.0).collect::<Vec<_>>());
    let cases: [(i64, Option<Tensor>, &[f32]); 4] = [
        (4, None, &[-34.8125, -14.25, -14.125, -15.6875, 9.125, 5.375]),
        (4, Some(bytes(&[3], [53, 7])), &[-37.25, -20.5, -7.9375, -21.375, 3.0, 6.125]),
        (4, Some(four_zeros), &[-30.4375, -17.625, -5.3125, -21.3125, 1.625, 5.1875]),
        (8, Some(bytes(&[6], [53, 7])), &[124.6875, 110.75, -155.5, -45.3125, -212.25, 14.375]),
    ];

    for (bits, zeros, wanted) in cases {
        let packed = bytes(&[3, 2, 2 * bits as usize], [37, 11]);
        let mut own = Model::new(17).input("x", &[2, 20]).constant("w", &packed).constant("s", &f32s(&[6], &scales));
        own = own.constant("b", &ramp(&[3], 5));
        let zero = match &zeros {
            Some(zeros) => {
                own = own.constant("z", zeros);
                "z"
            }
            None => "_",
        };
        let sizes = vec![int("K", 20), int("N", 3), int("bits", bits), int("block_size", 16), int("accuracy_level", 1)];
        own = own.node("MatMulNBits", &format!("x w s {zero} _ b"), "y", sizes).output("y");
        own.graph().node[0].domain = Some("com.microsoft".into());
        let found = own.run(std::slice::from_ref(&x)).remove(0).to_numbers();
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() <= 1e-4, "{bits}: {found}, not {wanted}");
        }
    }
}

/// Attributes that do not fit the file cost nothing.
#[test]
fn weights_of_other_sizes() {
    let mut own =
        Model::new(17).input("x", &[1, 2]).constant("w", &bytes(&[1, 1, 8], [1, 1])).constant("s", &f32s(&[1], &[1.0]));
    let most = i64::from(i32::MAX);
    own =
        own.node("MatMulNBits", "x w s", "y", vec![int("K", most), int("N", most), int("block_size", 16)]).output("y");
    own.graph().node[0].domain = Some("com.microsoft".into());
    let message = own.import().unwrap_err().to_string();
    assert!(
        message.ends_with("weights of shape [1, 1, 8] and 1 scales are no 2147483647x2147483647 matrix"),
        "{message}"
    );
}

/// A layer with integer weights computes what one with the dequantised weights does.
#[test]
fn recurrent_layers_of_bytes() {
    let bytes = |shape: &[usize], seed: i64| {
        let count: usize = shape.iter().product();
        let numbers: Vec<f32> = (0..count as i64).map(|i| ((i * 7 + seed) % 23 - 11) as f32).collect();
        Tensor::of_numbers(shape, DType::I8, &numbers).unwrap()
    };
    let (x, bias) = (ramp(&[2, 1, 3], 1), ramp(&[1, 16], 2));
    let (w, r) = (bytes(&[1, 3, 8], 1), bytes(&[1, 2, 8], 2));
    let (of_w, of_r) = (ramp(&[1, 8], 3), f32s(&[1], &[0.125]));
    let zeros = [bytes(&[1, 8], 3), bytes(&[1], 4)];
    let mut integers = Model::new(17).input("x", x.shape()).constant("w", &w).constant("r", &r).constant("b", &bias);
    integers = integers.constant("ws", &of_w).constant("wz", &zeros[0]).constant("rs", &of_r).constant("rz", &zeros[1]);
    let integers = integers.node("DynamicQuantizeLSTM", "x w r b _ _ _ _ ws wz rs rz", "y h c", vec![]);
    let mut integers = integers.output("y").output("h").output("c");
    integers.graph().node[0].domain = Some("com.microsoft".into());

    let [input_weights, state_weights] =
        [(&w, &of_w, &zeros[0]), (&r, &of_r, &zeros[1])].map(|(weights, scales, zeros)| {
            let (weights, scales, zeros) = (weights.to_numbers(), scales.to_numbers(), zeros.to_numbers());
            move |input: usize, gate: usize| {
                let own = |all: &[f32]| all[gate % all.len()];
                ((weights[input * 8 + gate] - own(&zeros)) * own(&scales)) as f64
            }
        });
    let data: Vec<f64> = rounded_in_its_range(&x.to_numbers().into_iter().map(f64::from).collect::<Vec<_>>());
    let bias = bias.to_numbers();
    let (mut state, mut cells, mut all) = ([0f64; 2], [0f64; 2], Vec::new());
    for step in 0..2 {
        let rounded = rounded_in_its_range(&state);
        let gate = |gate: usize| {
            let of_input: f64 = (0..3).map(|k| data[step * 3 + k] * input_weights(k, gate)).sum();
            let of_state: f64 = (0..2).map(|k| rounded[k] * state_weights(k, gate)).sum();
            of_input + of_state + f64::from(bias[gate]) + f64::from(bias[8 + gate])
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for unit in 0..2 {
            let [input, output, forget] = [0, 2, 4].map(|first| sigmoid(gate(first + unit)));
            cells[unit] = forget * cells[unit] + input * gate(6 + unit).tanh();
            state[unit] = output * cells[unit].tanh();
        }
        all.extend(state.map(|x| x as f32));
    }
    let found = integers.run(&[x]);
    let last = [state, cells].map(|numbers| f32s(&[1, 1, 2], &numbers.map(|x| x as f32)));
    for (found, wanted) in found.iter().zip([&f32s(&[2, 1, 1, 2], &all), &last[0], &last[1]]) {
        assert_eq!(difference(found, wanted, 1e-5, 1e-6), None);
    }
    assert!(all.iter().any(|y| y.abs() > 0.1));
}

/// Returns numbers rounded to 256 levels in the range of these numbers and 0, in single precision
/// as ONNX defines it.
fn rounded_in_its_range(numbers: &[f64]) -> Vec<f64> {
    let [least, most] = [f64::min, f64::max].map(|of| numbers.iter().copied().fold(0.0, of) as f32);
    let scale = if most > least { (most - least) / 255.0 } else { 1.0 };
    let zero = (-least / scale).round_ties_even();
    let integer = |x: f64| ((x as f32 / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero;
    numbers.iter().map(|&x| f64::from(integer(x) * scale)).collect()
}

/// Rewriting finds attention, without repeated keys for groups of heads.
#[test]
fn attention_in_one_step() {
    let own = Model::new(23).input("q", &[1, 4, 5, 8]).input("k", &[1, 2, 5, 8]).input("v", &[1, 2, 5, 8]);
    let own = own.node("Attention", "q k v", "y", vec![int("is_causal", 1)]).output("y");
    let rewritten = rewrite(&own.import().unwrap()).unwrap();
    let names: Vec<&str> = ops(&rewritten).into_iter().filter(|name| *name != "Reshape").collect();
    assert_eq!(names, ["Attention"]);
}

#[test]
fn what_is_refused() {
    let [x, w] = [ramp(&[1, 2, 4], 1), ramp(&[4, 12], 2)].map(Some);
    let message = |operator: &str, inputs: &[Option<Tensor>], attributes| {
        let error = model(operator, inputs, "y", attributes).import().unwrap_err().to_string();
        error.split_once("): ").map(|(_, reason)| reason.to_string()).unwrap()
    };
    let rotary = vec![int("num_heads", 2), int("do_rotary", 1)];
    let reason = "rotations and shared buffers are not supported";
    assert_eq!(message("Attention", &[x.clone(), w.clone()], rotary), reason);
    assert_eq!(message("Attention", &[x.clone(), w.clone()], vec![]), "attribute 'num_heads': is missing or negative");
    let three = vec![int("num_heads", 3)];
    assert_eq!(message("Attention", &[x.clone(), w], three), "a tensor of shape [1, 2, 4] does not have 3 heads");
    let batch = vec![int("transBatchA", 1)];
    assert_eq!(message("FusedMatMul", &[x.clone(), x], batch), "transpositions of the batch are not supported");
}

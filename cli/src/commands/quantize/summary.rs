//! Measurements of a quantised network as tables, a picture and JSON.

use autotune_charts::{Chart, ChartAxis, Colour, Mark, MarkupElement, NamedPoint, Scale};
use autotune_network::{LayerError, PrecisionMix, QuantisedNetwork, printable};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

const SIZE: [f64; 2] = [720.0, 420.0];

/// Figures of a quantised network in the output of `--json`.
#[derive(Serialize)]
pub(super) struct QuantisationFigures {
    calibration: &'static str,
    corrects_biases: bool,
    /// Error of each compared method, with all layers in integers.
    compared: Vec<MethodError>,
    /// Layers by their error, largest first.
    layers: Vec<LayerFigures>,
    mixes: Vec<MixFigures>,
    /// Position of the written network among the mixes.
    chosen: usize,
}

#[derive(Serialize)]
struct MethodError {
    calibration: &'static str,
    max_rel_error: f64,
}

#[derive(Serialize)]
struct LayerFigures {
    layer: String,
    operator: &'static str,
    /// Largest relative error of the outputs if only this layer computes with integers.
    max_rel_error: f64,
    is_float: bool,
}

/// Figures of a mix of precisions.
#[derive(Serialize)]
struct MixFigures {
    float_layers: usize,
    max_rel_error: f64,
    agreement: Option<f64>,
    run_secs: f64,
}

impl QuantisationFigures {
    pub(super) fn of(quantised: &QuantisedNetwork) -> Self {
        let method = |&(method, max_rel_error): &(autotune_network::quantisation::RangeMethod, f64)| MethodError {
            calibration: method.word(),
            max_rel_error,
        };
        let mix = |mix: &PrecisionMix| {
            let PrecisionMix { float_layers, max_rel_error, agreement, run_secs } = *mix;
            MixFigures { float_layers, max_rel_error, agreement, run_secs }
        };
        let kept = quantised.mixes[quantised.chosen].float_layers;
        let layer = |(number, layer): (usize, &LayerError)| {
            let LayerError { name, op, max_rel_error } = layer.clone();
            LayerFigures { layer: name, operator: op, max_rel_error, is_float: number < kept }
        };
        Self {
            calibration: quantised.method.word(),
            corrects_biases: quantised.corrects_biases,
            compared: quantised.compared.iter().map(method).collect(),
            layers: quantised.layers.iter().enumerate().map(layer).collect(),
            mixes: quantised.mixes.iter().map(mix).collect(),
            chosen: quantised.chosen,
        }
    }
}

/// Returns the tables of layers and mixes, and a summary.
pub(super) fn table(quantised: &QuantisedNetwork) -> String {
    let figures = QuantisationFigures::of(quantised);
    let mut layers = new_table(["layer", "operator", "calibration", "error alone", "computes in"]);
    for LayerFigures { layer, operator, max_rel_error, is_float } in &figures.layers {
        let error = format!("{max_rel_error:.1e}");
        let way = if *is_float { "f32" } else { "int8" };
        layers.add_row([&printable(layer), *operator, figures.calibration, &error, way]);
    }

    let mut mixes = new_table(["float layers", "error", "same class", "ms", "written"]);
    for (number, mix) in figures.mixes.iter().enumerate() {
        mixes.add_row([
            format!("{} of {}", mix.float_layers, figures.layers.len()),
            format!("{:.1e}", mix.max_rel_error),
            mix.agreement.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0)),
            format!("{:.3}", mix.run_secs * 1e3),
            (if number == figures.chosen { "yes" } else { "" }).into(),
        ]);
    }
    format!("{layers}\n\n{mixes}\n{}", summary(&figures))
}

fn new_table<const COLUMNS: usize>(headers: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(headers);
    for column in table.column_iter_mut().skip(COLUMNS - 3).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn summary(figures: &QuantisationFigures) -> String {
    let compared = figures.compared.iter().map(|method| format!("{} {:.1e}", method.calibration, method.max_rel_error));
    let compared = compared.collect::<Vec<_>>().join(", ");
    let biases = if figures.corrects_biases { "corrected, which lowers the error" } else { "unchanged" };
    let mix = &figures.mixes[figures.chosen];
    format!(
        "calibration {} (errors: {compared}), biases {biases}; written: {} of {} layers in integers, error {:.1e}",
        figures.calibration,
        figures.layers.len() - mix.float_layers,
        figures.layers.len(),
        mix.max_rel_error
    )
}

/// Draws error against run time, with a point for each mix.
pub(super) fn chart(quantised: &QuantisedNetwork, name: &str) -> MarkupElement {
    let at = |mix: &PrecisionMix| [mix.run_secs * 1e3, mix.max_rel_error];
    let point = |mix: &PrecisionMix| NamedPoint {
        at: at(mix),
        name: format!("{} float", mix.float_layers),
        more: format!(
            "{} layers in f32: {:.3} ms, error {:.1e}",
            mix.float_layers,
            mix.run_secs * 1e3,
            mix.max_rel_error
        ),
        from: None,
    };
    let [x, y] = [0, 1].map(|axis| quantised.mixes.iter().map(move |mix| at(mix)[axis]));
    let axes = [
        ChartAxis::new("run time, ms", Scale::linear(x.chain([0.0]))),
        ChartAxis::new("largest error of an output, relative", Scale::linear(y.chain([0.0]))),
    ];
    let points = quantised.mixes.iter().map(point).collect();
    let chosen = &quantised.mixes[quantised.chosen];
    Chart::new(format!("{name}: error against run time"), SIZE, axes)
        .mark(Mark::Named { points, colour: Colour::Series(0) })
        .mark(Mark::Dots { points: vec![at(chosen)], colour: Colour::Series(1) })
        .legend("written network", Colour::Series(1))
        .draw()
}

//! Names of things to tune or run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use autotune::{Network, Task};
use autotune_ir::Target;
use autotune_workloads::{Workload, WorkloadError, operators};
use thiserror::Error;

use crate::cut::{Cut, StepWork};
use autotune_graph::Graph;
use autotune_graph::GraphError;
use autotune_graph::onnx::{self, ImportError, ImportOptions};
use autotune_graph::rewrite::rewrite;
use autotune_graph::zoo::{self, UnknownNetwork, ZooError};

/// A built-in network by name, a network in an ONNX file, or a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A single operator, given by a workload's text.
    Workload(Workload),
    /// A built-in network, one of [`zoo::NAMES`].
    Network(String),
    /// Path of an ONNX file.
    Model(PathBuf),
}

/// Reason that a subject has no graph.
#[derive(Debug, Error)]
pub enum SubjectLoadError {
    /// A built-in network cannot be created.
    #[error(transparent)]
    Zoo(#[from] ZooError),
    /// The file cannot be imported.
    #[error("{}: {source}", path.display())]
    Import {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: ImportError,
    },
    /// The graph cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] GraphError),
    /// Shapes or values of inputs were given for a subject whose shapes are fixed.
    #[error("the shapes of {name} are fixed and cannot be specified")]
    Fixed {
        /// Name of the subject.
        name: String,
    },
}

/// Error: a text names neither a network nor a valid workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubjectError {
    /// The word names no network.
    #[error("{0}, a file such as model.onnx, or a workload such as conv2d:c=64,h=56,w=56,o=64,k=3,p=1")]
    Network(#[from] UnknownNetwork),
    /// The workload is malformed.
    #[error("malformed workload '{text}': {source}")]
    Workload {
        /// The text as given.
        text: String,
        /// Cause, including the field at fault.
        source: WorkloadError,
    },
}

impl Subject {
    /// Parses a subject.
    ///
    /// ```
    /// use autotune_network::Subject;
    /// assert_eq!(Subject::of("resnet18")?, Subject::Network("resnet18".into()));
    /// assert!(matches!(Subject::of("matmul:m=4,n=4,k=4")?, Subject::Workload(_)));
    /// assert!(Subject::of("resnet19").is_err());
    /// # Ok::<(), autotune_network::SubjectError>(())
    /// ```
    pub fn of(text: &str) -> Result<Self, SubjectError> {
        let is_operator = || operators().iter().any(|kind| kind.name == text);
        // An operator's name without fields gives an error about the missing field, not an unknown
        // network.
        if text.contains(':') || is_operator() {
            let wrong = |source| SubjectError::Workload { text: text.into(), source };
            return Ok(Self::Workload(text.parse().map_err(wrong)?));
        }
        if Path::new(text).extension().is_some_and(|extension| extension == "onnx") {
            return Ok(Self::Model(text.into()));
        }
        match zoo::NAMES.contains(&text) {
            true => Ok(Self::Network(text.into())),
            false => Err(UnknownNetwork(text.into()).into()),
        }
    }

    /// Loads the [rewritten](crate::rewrite()) graph of a network; `None` for a workload. The
    /// options apply to ONNX files.
    pub fn graph(&self, options: &ImportOptions) -> Result<Option<Graph>, SubjectLoadError> {
        let imported = self.imported(options)?;
        Ok(imported.map(|graph| rewrite(&graph)).transpose()?)
    }

    /// Loads the graph of a network before rewriting; `None` for a workload.
    pub fn imported(&self, options: &ImportOptions) -> Result<Option<Graph>, SubjectLoadError> {
        let is_open = options.shapes.is_empty() && options.values.is_empty();
        Ok(Some(match self {
            Self::Workload(_) if is_open => return Ok(None),
            Self::Workload(workload) => return Err(SubjectLoadError::Fixed { name: workload.to_string() }),
            Self::Network(name) if is_open => zoo::graph(name)?,
            Self::Network(name) => return Err(SubjectLoadError::Fixed { name: name.clone() }),
            Self::Model(path) => {
                onnx::read(path, options).map_err(|source| SubjectLoadError::Import { path: path.clone(), source })?
            }
        }))
    }

    /// Returns the tasks to tune for a target, given the subject's [graph](Subject::graph), or its
    /// graphs for several shapes of the inputs.
    pub fn tasks<'a>(&self, graphs: impl IntoIterator<Item = &'a Graph>, target: &Target) -> Network {
        self.tasks_of_calls(graphs.into_iter().map(|graph| (graph, 1)), target)
    }

    /// Returns the tasks to tune for a target, given the subject's graphs for several shapes of the
    /// inputs and the number of calls with each.
    pub fn tasks_of_calls<'a>(&self, graphs: impl IntoIterator<Item = (&'a Graph, usize)>, target: &Target) -> Network {
        match self {
            Self::Workload(workload) => {
                Network { name: workload.to_string(), tasks: vec![Task::single(workload.clone())] }
            }
            Self::Network(_) | Self::Model(_) => {
                let mut graphs = graphs.into_iter().peekable();
                let name = graphs.peek().map(|(graph, _)| graph.name().to_string()).unwrap_or_default();
                Network { name, tasks: tasks_of_calls(graphs, target) }
            }
        }
    }
}

/// Returns the distinct workloads of graphs on a target in the order of their first run, each
/// named after the first node that it computes.
pub fn tasks<'a>(graphs: impl IntoIterator<Item = &'a Graph>, target: &Target) -> Vec<Task> {
    tasks_of_calls(graphs.into_iter().map(|graph| (graph, 1)), target)
}

/// Returns the tasks of graphs, from the number of calls of each.
fn tasks_of_calls<'a>(graphs: impl IntoIterator<Item = (&'a Graph, usize)>, target: &Target) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut known: HashMap<Workload, usize> = HashMap::new();
    let mut names = TaskNames::default();
    for (graph, calls) in graphs {
        for step in Cut::for_target(graph, target).steps {
            let StepWork::Kernel(workload) = step.work else { continue };
            match known.get(&workload) {
                Some(&task) => tasks[task].count = tasks[task].count.saturating_add(calls),
                None => {
                    known.insert(workload.clone(), tasks.len());
                    tasks.push(Task { name: names.of(&step.name), workload, count: calls });
                }
            }
        }
    }
    tasks
}

/// Generator of unique task names.
#[derive(Default)]
struct TaskNames {
    names: HashSet<String>,
    /// Last number appended to each name that occurs repeatedly.
    numbers: HashMap<String, usize>,
}

impl TaskNames {
    /// Returns a name, with the first free number appended if it is taken.
    fn of(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        while !self.names.insert(name.clone()) {
            let number = self.numbers.entry(wanted.into()).or_default();
            *number += 1;
            name = format!("{wanted}#{number}");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_network_a_file_or_a_workload() {
        let target = Target::detect("cpu", Some(1)).unwrap();
        let tasks = |text: &str| {
            let subject = Subject::of(text).unwrap();
            subject.tasks(subject.graph(&ImportOptions::default()).unwrap().as_ref(), &target).tasks
        };
        assert_eq!(tasks("dqn").iter().map(|task| task.count).sum::<usize>(), 5);
        let one = tasks("matmul:m=8,n=16,k=8");
        assert_eq!((one.len(), one[0].count), (1, 1));
        assert_eq!(Subject::of("folder/model.onnx").unwrap(), Subject::Model("folder/model.onnx".into()));

        let error = |text: &str| Subject::of(text).unwrap_err().to_string();
        assert!(error("resnet19").contains("unknown network 'resnet19': expected resnet18"));
        assert!(error("").contains("unknown network ''"));
        assert!(error("conv2d").contains("is missing"));
        assert!(error("matmul:m=0,n=1,k=1").contains("field 'm': must be at least 1"));
        assert!(error("conv4d:c=1").contains("unknown operator 'conv4d'"));
    }
}

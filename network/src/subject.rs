//! What a user names to be tuned or run.

use std::collections::HashMap;

use autotune::{Network, Task};
use autotune_schedules::workload::operators;
use autotune_schedules::{Workload, WorkloadError};
use thiserror::Error;

use crate::cut::{Cut, Work};
use crate::graph::Graph;
use crate::zoo::{self, UnknownNetwork, ZooError};

/// A network that comes with the library, by its name, or a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// One operator.
    Workload(Workload),
    /// One of [`zoo::NAMES`].
    Network(String),
}

/// Neither a network nor a workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubjectError {
    /// A word that names no network.
    #[error("{0}, or a workload such as conv2d:c=64,h=56,w=56,o=64,k=3,p=1")]
    Network(#[from] UnknownNetwork),
    /// A workload that makes no sense.
    #[error("malformed workload '{text}': {source}")]
    Workload {
        /// The text as given.
        text: String,
        /// The field at fault.
        source: WorkloadError,
    },
}

impl Subject {
    /// What a text names.
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
        if text.contains(':') || is_operator() {
            let wrong = |source| SubjectError::Workload { text: text.into(), source };
            return Ok(Self::Workload(text.parse().map_err(wrong)?));
        }
        match zoo::NAMES.contains(&text) {
            true => Ok(Self::Network(text.into())),
            false => Err(UnknownNetwork(text.into()).into()),
        }
    }

    /// The graph of a network, rewritten; `None` of a workload.
    pub fn graph(&self) -> Result<Option<Graph>, ZooError> {
        match self {
            Self::Workload(_) => Ok(None),
            Self::Network(name) => Ok(Some(zoo::graph(name)?)),
        }
    }

    /// What is to be tuned, given its [graph](Subject::graph).
    pub fn tasks(&self, graph: Option<&Graph>) -> Network {
        match (self, graph) {
            (Self::Workload(workload), _) => {
                Network { name: workload.to_string(), tasks: vec![Task::single(workload.clone())] }
            }
            (Self::Network(name), graph) => Network { name: name.clone(), tasks: graph.map(tasks).unwrap_or_default() },
        }
    }
}

/// The distinct workloads of a graph, in the order in which they first run, each with the name of the first node that it computes.
pub fn tasks(graph: &Graph) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut known: HashMap<Workload, usize> = HashMap::new();
    for step in Cut::of(graph).steps {
        let Work::Kernel(workload) = step.work else { continue };
        match known.get(&workload) {
            Some(&task) => tasks[task].count += 1,
            None => {
                known.insert(workload.clone(), tasks.len());
                let is_taken = |name: &str| tasks.iter().any(|task| task.name == name);
                let numbered = (1..).map(|number| format!("{}#{number}", step.name));
                let name = [step.name.clone()].into_iter().chain(numbered).find(|name| !is_taken(name));
                tasks.push(Task { name: name.unwrap_or_default(), workload, count: 1 });
            }
        }
    }
    tasks
}

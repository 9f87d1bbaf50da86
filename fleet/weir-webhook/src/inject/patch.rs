//! The operations of a JSON patch. All of them add: nothing of a pod is removed, and fields that this program does not know
//! stay as they are.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use serde_json::{Value, json};

/// A place in a pod, as the names and numbers that lead to it.
#[derive(Debug, Clone)]
pub struct Place(Vec<String>);

impl Place {
    /// A field of the pod.
    pub fn new(path: &[&str]) -> Self {
        Self(path.iter().map(|&step| step.to_owned()).collect())
    }

    /// What is below it.
    pub fn then(&self, step: impl ToString) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.to_string());
        Self(steps)
    }

    /// Sets a field, whether or not it is there.
    pub fn set(&self, value: Value) -> PatchOperation {
        PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(&self.0), value })
    }
}

/// Adds elements to lists of which some are not there yet.
#[derive(Debug)]
pub struct List {
    place: Place,
    there: bool,
}

impl List {
    /// The list at `place`, which is there or not.
    pub fn new<T>(place: Place, list: &Option<Vec<T>>) -> Self {
        Self { place, there: list.is_some() }
    }

    /// Adds an element at the end.
    pub fn push(&mut self, value: Value) -> PatchOperation {
        self.add("-", value)
    }

    /// Adds an element before all others.
    pub fn push_front(&mut self, value: Value) -> PatchOperation {
        self.add("0", value)
    }

    fn add(&mut self, at: &str, value: Value) -> PatchOperation {
        if std::mem::replace(&mut self.there, true) {
            self.place.then(at).set(value)
        } else {
            self.place.set(json!([value]))
        }
    }
}

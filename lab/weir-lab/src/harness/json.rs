//! Results in JSON: what allocators came to, by their names.

use serde_json::{Map, Value};

/// One value for each allocator, under its name. `all` is in the order of `names`.
pub fn by_name<T>(names: &[&str], all: &[T], value: impl Fn(&T) -> Value) -> Value {
    names.iter().map(|name| name.to_string()).zip(all.iter().map(value)).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_value_is_under_its_name() {
        let of = super::by_name(&["b", "a"], &[1, 2], |&n| n.into());
        assert_eq!(of, serde_json::json!({ "a": 2, "b": 1 }));
    }
}

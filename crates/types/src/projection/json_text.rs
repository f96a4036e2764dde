//! A JSON value as text: the status fields that Tenure writes are kept so.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// A JSON value as text, without spaces and with sorted keys. The keeper holds the status of each
/// queue, and a [`Value`] with the same content takes ten times the memory. The default is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
pub struct JsonText(Option<Box<str>>);

impl JsonText {
    /// True if the value is null.
    pub const fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Reads the value. None: it is null, or not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.0.as_deref()?).ok()
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self((!value.is_null()).then(|| value.to_string().into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_equal_in_any_order_of_their_keys() {
        let of = |text| serde_json::from_str::<JsonText>(text).unwrap();
        assert_eq!(of(r#"{"b": [1, "x"], "a": {}}"#), json!({"a": {}, "b": [1, "x"]}).into());
        assert_ne!(of("[1, 2]"), of("[2, 1]"));
        assert_ne!(of("3"), of(r#""3""#));
        assert!(of("null").is_null() && JsonText::default().is_null());
        assert_eq!((of("[1]").read::<Vec<u8>>(), of("[1]").read::<String>()), (Some(vec![1]), None));
        assert_eq!(of("null").read::<Option<u8>>(), None);
    }
}

//! Objects that print as they are written in a test: only what differs from the default.

use std::fmt;

/// Declares a struct with defaults that prints as `Name { field: value, ..DEFAULT }`, in Rust.
#[macro_export]
macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            /// The same with one field less that differs from the default, each.
            pub fn simpler(&self) -> Vec<Self> {
                let default = Self::default();
                let mut simpler = Vec::new();
                $(if self.$field != default.$field {
                    simpler.push(Self { $field: default.$field, ..self.clone() });
                })*
                simpler
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let default = Self::default();
                write!(f, "{} {{ ", stringify!($name))?;
                $(if self.$field != default.$field {
                    write!(f, "{}: {:?}, ", stringify!($field), self.$field)?;
                })*
                write!(f, "..{}::default() }}", stringify!($name))
            }
        }
    };
}

/// A list that prints as `List(vec![..])`.
#[derive(Clone, Default, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<T: Clone> List<T> {
    /// The same with one less, each.
    pub fn simpler(&self) -> impl Iterator<Item = Self> {
        (0..self.0.len()).map(|place| {
            let mut shorter = self.0.clone();
            shorter.remove(place);
            Self(shorter)
        })
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List(vec!{:?})", self.0)
    }
}

/// Declares a struct of counters that can be added up, and an iterator over them by name.
///
/// All fields are `u64` and have the visibility of the struct. A counter has the name of its field,
/// unless another name follows.
///
/// ```
/// carom_proto::counters! {
///     /// Counters of a socket.
///     pub struct Counters {
///         /// Datagrams received.
///         received,
///         /// Datagrams that could not be decoded.
///         malformed = "received_malformed",
///     }
/// }
///
/// let counters = Counters { received: 3, malformed: 1 };
/// assert!(counters.by_name().eq([("received", 3), ("received_malformed", 1)]));
/// ```
#[macro_export]
macro_rules! counters {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $Counters:ident {
            $($(#[$doc:meta])* $field:ident $(= $name:literal)?),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $Counters {
            $($(#[$doc])* $visibility $field: u64,)+
        }

        impl $Counters {
            /// Returns all counters with their names, in the order of their declaration.
            $visibility fn by_name(self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($crate::counters!(@name $field $($name)?), self.$field)),+].into_iter()
            }
        }

        impl ::core::ops::AddAssign for $Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

//! Enumerations whose values have names.

/// Declares an enumeration whose values have the same name on the command line and in the records.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
        $vis enum $type { $($(#[$doc])* #[value(name = $name)] $value,)+ }

        impl $type {
            /// Returns the name in the records and on the command line.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)+ }
            }
        }
    };
}

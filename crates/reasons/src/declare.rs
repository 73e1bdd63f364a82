//! The macro that turns the rows of the table into the enum.

/// A row's variant is its name; a row may give another name if that would not be plain English.
macro_rules! name {
    ($variant:ident) => {
        stringify!($variant)
    };
    ($variant:ident $name:literal) => {
        $name
    };
}

macro_rules! reasons {
    ($($subject:ident { $(
        $variant:ident $(= $name:literal)?: $retry:ident, $meaning:literal, $remedy:literal;
    )+ })+) => {
        /// A stable name for why an object is as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($($variant,)+)+
        }

        impl Reason {
            pub const ALL: &'static [Self] = &[$($(Self::$variant,)+)+];

            pub const fn row(self) -> &'static $crate::Row {
                match self {
                    $($(Self::$variant => &$crate::Row {
                        name: $crate::declare::name!($variant $($name)?),
                        subject: $crate::Subject::$subject,
                        retry: $crate::Retry::$retry,
                        meaning: $meaning,
                        remedy: $remedy,
                    },)+)+
                }
            }
        }
    };
}

pub(crate) use {name, reasons};

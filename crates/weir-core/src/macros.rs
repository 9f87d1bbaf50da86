//! Macros that write what several types have in common.

/// Operators of an amount: amounts have sums and differences, and plain numbers multiply and divide them.
macro_rules! amount {
    ($Amount:ident($Number:ty)) => {
        impl $Amount {
            /// Both together; at most what the number holds.
            #[inline]
            pub(crate) const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// This without `other`; nothing if `other` is more.
            #[inline]
            pub(crate) const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl core::ops::Add for $Amount {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl core::ops::Sub for $Amount {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl core::ops::AddAssign for $Amount {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl core::ops::SubAssign for $Amount {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl core::iter::Sum for $Amount {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                Self(all.map(|amount| amount.0).sum())
            }
        }

        impl core::ops::Mul<$Number> for $Amount {
            type Output = Self;
            #[inline]
            fn mul(self, times: $Number) -> Self {
                Self(self.0 * times)
            }
        }

        impl core::ops::Div<$Number> for $Amount {
            type Output = Self;
            #[inline]
            fn div(self, parts: $Number) -> Self {
                Self(self.0 / parts)
            }
        }
    };
}

/// Operators of a point: two points have a distance and no sum.
macro_rules! point {
    ($Point:ident($Number:ty) by $Amount:ident($Wide:ty)) => {
        impl core::ops::Add<$Amount> for $Point {
            type Output = Self;
            #[inline]
            fn add(self, distance: $Amount) -> Self {
                Self(self.0 + distance.0 as $Number)
            }
        }

        impl core::ops::Sub<$Amount> for $Point {
            type Output = Self;
            #[inline]
            fn sub(self, distance: $Amount) -> Self {
                Self(self.0 - distance.0 as $Number)
            }
        }

        impl core::ops::Sub for $Point {
            type Output = $Amount;
            #[inline]
            fn sub(self, first: Self) -> $Amount {
                $Amount((self.0 - first.0) as $Wide)
            }
        }
    };
}

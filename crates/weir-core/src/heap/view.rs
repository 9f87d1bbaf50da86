//! How views of a heap are made: a reference to it each, with the methods of one concern.

/// Makes a view, and the heap's method that gives it. A view is passed by value: where a method is not inlined, a pointer to one
/// would have to be on the stack.
macro_rules! view {
    ($(#[$view:meta])* $vis:vis struct $View:ident; $(#[$method:meta])* fn $name:ident;) => {
        $(#[$view])*
        $vis struct $View<'a, P: Platform> {
            pub(in crate::heap) heap: &'a Heap<P>,
        }

        impl<P: Platform> Clone for $View<'_, P> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform> Copy for $View<'_, P> {}

        impl<P: Platform> Heap<P> {
            $(#[$method])*
            #[inline(always)]
            $vis fn $name(&self) -> $View<'_, P> {
                $View { heap: self }
            }
        }
    };
}

pub(in crate::heap) use view;

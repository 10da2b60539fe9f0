//! Methods of a link that forward to a wrapped link.

/// Implements methods of [`Link`](crate::net::Link) by those of a wrapped link:
/// `forward_link!(self => (self.inner): watch report_silence)`.
macro_rules! forward_link {
    ($this:ident => $inner:tt: $($method:ident)*) => { $( forward_link!(@$method $this $inner); )* };
    (@send $this:ident $inner:tt) => {
        fn send(&mut $this, batch: &[$crate::net::Outgoing<'_>]) -> ::std::io::Result<usize> {
            $inner.send(batch)
        }
    };
    (@receive_into $this:ident $inner:tt) => {
        fn receive_into(&mut $this, sink: &mut dyn $crate::net::Sink) -> ::std::io::Result<usize> {
            $inner.receive_into(sink)
        }
    };
    (@receive_again $this:ident $inner:tt) => {
        fn receive_again(&mut $this, sink: &mut dyn $crate::net::Sink) -> ::std::io::Result<usize> {
            $inner.receive_again(sink)
        }
    };
    (@local_addresses $this:ident $inner:tt) => {
        fn local_addresses(&$this) -> ::std::io::Result<Vec<$crate::net::LocalAddress>> {
            $inner.local_addresses()
        }
    };
    (@properties $this:ident $inner:tt) => {
        fn properties(&$this) -> $crate::net::LinkProperties<'_> {
            $inner.properties()
        }
    };
    (@prefers $this:ident $inner:tt) => {
        fn prefers(&mut $this, to: ::std::net::SocketAddr, form: $crate::net::PayloadForm) -> bool {
            $inner.prefers(to, form)
        }
    };
    (@watch $this:ident $inner:tt) => {
        fn watch(&mut $this, yes: bool) -> ::std::io::Result<()> {
            $inner.watch(yes)
        }
    };
    (@next_wakeup $this:ident $inner:tt) => {
        fn next_wakeup(&$this) -> Option<::std::time::Instant> {
            $inner.next_wakeup()
        }
    };
    (@poll_too_big $this:ident $inner:tt) => {
        fn poll_too_big(&mut $this) -> Option<$crate::net::TooBig> {
            $inner.poll_too_big()
        }
    };
    (@report_silence $this:ident $inner:tt) => {
        fn report_silence(&mut $this, peer: ::std::net::SocketAddr) {
            $inner.report_silence(peer);
        }
    };
    (@join_group $this:ident $inner:tt) => {
        fn join_group(&mut $this, group: &$crate::net::Group) -> ::std::io::Result<()> {
            $inner.join_group(group)
        }
    };
    (@leave_group $this:ident $inner:tt) => {
        fn leave_group(&mut $this, address: ::std::net::SocketAddr) {
            $inner.leave_group(address);
        }
    };
    (@route_group $this:ident $inner:tt) => {
        fn route_group(
            &mut $this,
            group: &$crate::net::Group,
        ) -> ::std::io::Result<::std::net::SocketAddr> {
            $inner.route_group(group)
        }
    };
    (@stall $this:ident $inner:tt) => {
        fn stall(&mut $this) -> Option<$crate::net::LinkStall> {
            $inner.stall()
        }
    };
    (@notice $this:ident $inner:tt) => {
        fn notice(&mut $this) -> Option<String> {
            $inner.notice()
        }
    };
    (@statistics $this:ident $inner:tt) => {
        fn statistics(&$this) -> $crate::net::Statistics {
            $inner.statistics()
        }
    };
}

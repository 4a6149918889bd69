package httpapi

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// sayRefusedEvery bounds how often the log tells of refused connections.
const sayRefusedEvery = time.Minute

// limitedListener bounds how many connections are open at once; the next ones
// wait in the kernel. Of those, one address has its share at most: what it opens
// beyond is closed at once, so that it can't take the places of all others.
type limitedListener struct {
	net.Listener
	places chan struct{}
	shares *shares // nil: callers have no addresses, as on a Unix socket
	done   chan struct{}
	once   sync.Once
}

func (s *Server) places() chan struct{} { return make(chan struct{}, s.cfg.Limits.Connections) }

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		giveBack, ok := l.shares.take(conn.RemoteAddr())
		if !ok {
			_ = conn.Close()
			continue
		}
		return &limitedConn{Conn: conn, free: sync.OnceFunc(func() {
			giveBack()
			<-l.places
		})}, nil
	}
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// shares counts the open connections of each address.
type shares struct {
	most    int
	refused func(from netip.Prefix, open int)

	mu   sync.Mutex
	open map[netip.Prefix]int
}

// take takes one more place for an address, unless it has its share.
func (s *shares) take(a net.Addr) (giveBack func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	from := addressOf(a)
	s.mu.Lock()
	open := s.open[from]
	if ok = open < s.most; ok {
		s.open[from]++
	}
	s.mu.Unlock()
	if !ok {
		s.refused(from, open)
		return nil, false
	}
	return func() { s.giveBack(from) }, true
}

func (s *shares) giveBack(from netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[from]--; s.open[from] == 0 {
		delete(s.open, from)
	}
}

// addressOf gives what counts as one address: an IPv4 address, or an IPv6
// network of 64 bits, of which one host may have every address.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, _ := ip.Prefix(bits) // an address that isn't one has the zero Prefix
	return prefix
}

func (s *Server) newShares() *shares {
	var mu sync.Mutex
	var said time.Time
	return &shares{most: s.cfg.Limits.PerAddress, open: map[netip.Prefix]int{}, refused: func(from netip.Prefix, open int) {
		total := s.refused.Add(1)
		now := s.cfg.Now()
		mu.Lock()
		defer mu.Unlock()
		if !said.IsZero() && now.Sub(said) < sayRefusedEvery {
			return
		}
		said = now
		s.cfg.Logger.Warn("connections are refused: one address has its share of them", "address", from.String(),
			"open", open, "refused", total)
	}}
}

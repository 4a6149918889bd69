// Package bustest is a fake of the Salt master's event bus, for tests of what
// listens there. Its bytes are Salt's own where a test takes Recorded ones,
// and in Salt's two framings where it makes its own.
package bustest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// Framing is one of the two ways in which Salt puts events on the stream.
type Framing uint8

// Bare: maps back to back. Prefixed: 4 bytes of length before each map.
const (
	Bare Framing = iota + 1
	Prefixed
)

// String gives a word for the names of sub-tests.
func (f Framing) String() string {
	if f == Prefixed {
		return "prefixed"
	}
	return "bare"
}

// Framings gives both.
func Framings() []Framing { return []Framing{Bare, Prefixed} }

// Lines are the Salt lines that there are recorded bytes of, with their framing.
func Lines() map[string]Framing {
	return map[string]Framing{"3006": Prefixed, "3007": Bare, "3008": Bare}
}

// Recorded gives what a listener on a real master of this line read.
func Recorded(tb testing.TB, line string) []byte {
	tb.Helper()
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "..", "..", "..", "test", "testdata", "frames", line+".bin")
	raw, err := os.ReadFile(path) // #nosec G304 -- test data
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// Frame puts a raw body on the stream, as bin or, as old Salts do, as str.
func Frame(f Framing, body []byte, asStr bool) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeMapLen(2) // a bytes.Buffer takes everything
	_ = enc.EncodeString("head")
	_ = enc.EncodeMapLen(0)
	_ = enc.EncodeString("body")
	if asStr {
		_ = enc.EncodeString(string(body))
	} else {
		_ = enc.EncodeBytes(body)
	}
	return Envelope(f, buf.Bytes())
}

// Envelope puts what stands for a map on the stream.
func Envelope(f Framing, m []byte) []byte {
	if f == Bare {
		return m
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...) // #nosec G115 -- test data
}

// Body is a tag, a blank line and data.
func Body(tag string, data any) []byte {
	raw, err := msgpack.Marshal(data)
	if err != nil {
		panic(err) //nolint:forbidigo // the test's own data can't be encoded
	}
	return append([]byte(tag+"\n\n"), raw...)
}

// Event is a frame of this tag and data.
func Event(f Framing, tag string, data any) []byte { return Frame(f, Body(tag, data), false) }

// Return is a frame as a minion's return makes one.
func Return(f Framing, jid, minion, fun string, ret any) []byte {
	return Event(f, "salt/job/"+jid+"/ret/"+minion, map[string]any{
		"cmd": "_return", "id": minion, "success": true, "return": ret, "retcode": 0, "jid": jid,
		"fun": fun, "fun_args": []any{}, "user": "oduflow", "_stamp": "2026-11-30T18:10:33.417951",
	})
}

// Server is a bus that does what the test says and nothing by itself: a new
// listener hears nothing, which is also what a deaf master looks like.
type Server struct {
	tb      testing.TB
	network string
	address string

	mu     sync.Mutex
	ln     net.Listener
	conns  []net.Conn
	total  int
	change chan struct{}
	done   sync.WaitGroup
}

// New makes a bus on a Unix socket of its own. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "bus") // short: a socket's path has 108 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return start(tb, "unix", filepath.Join(dir, "master_event_pub.ipc"))
}

// NewTCP makes a bus on a loopback port, as `ipc_mode: tcp` does.
func NewTCP(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, "tcp", "127.0.0.1:0")
}

func start(tb testing.TB, network, address string) *Server {
	s := &Server{tb: tb, network: network, address: address, change: make(chan struct{})}
	s.Up()
	tb.Cleanup(s.Down)
	return s
}

// Address is where a client finds it.
func (s *Server) Address() (network, address string) { return s.network, s.address }

// Up begins to listen, again after Down: on the same address, with a new socket.
func (s *Server) Up() {
	s.tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(s.tb.Context(), s.network, s.address)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.mu.Lock()
	s.ln, s.address = ln, ln.Addr().String()
	s.mu.Unlock()
	s.done.Go(func() { s.accept(ln) })
}

// Down closes the socket and all connections, as a master that stops.
func (s *Server) Down() {
	s.mu.Lock()
	ln := s.ln
	s.ln = nil
	s.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
	}
	s.Drop()
	s.done.Wait()
	s.Drop()
}

// Drop closes all connections and listens on.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *Server) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.total++
		close(s.change)
		s.change = make(chan struct{})
		s.mu.Unlock()
	}
}

// WaitJoins waits until n connections have been made since the start.
func (s *Server) WaitJoins(ctx context.Context, n int) {
	s.tb.Helper()
	for {
		s.mu.Lock()
		total, change := s.total, s.change
		s.mu.Unlock()
		if total >= n {
			return
		}
		select {
		case <-ctx.Done():
			s.tb.Fatalf("bus: %d connections, not %d: %v", total, n, ctx.Err())
		case <-change:
		}
	}
}

// Send writes bytes to every connection. What a client has closed is left out.
func (s *Server) Send(raw []byte) {
	s.mu.Lock()
	conns := append([]net.Conn(nil), s.conns...)
	s.mu.Unlock()
	for _, c := range conns {
		_, _ = c.Write(raw)
	}
}

// SendSlowly writes one byte at a time: a read never has a whole header.
func (s *Server) SendSlowly(raw []byte) {
	for i := range raw {
		s.Send(raw[i : i+1])
	}
}

// Cut writes the first n bytes of a frame and closes every connection.
func (s *Server) Cut(frame []byte, n int) {
	s.Send(frame[:n])
	s.Drop()
}

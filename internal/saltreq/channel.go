package saltreq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	greetingSize = 64
	// maxTotal bounds all that one connection may bring: greeting, READY and
	// one answer. Frames of size 0 count with their headers.
	maxTotal = maxAnswer + 8<<10
)

var errFrame = errors.New("the peer announced a frame beyond the limit")

// failure is why a request has no answer. attempted says whether a byte of the
// request could have left: if not, the request provably did nothing.
type failure struct {
	attempted bool
	reason    Reason
	err       error
}

// ask carries one request over one connection of its own and gives the last
// frame of the answer. build is called once the other end is known to be the
// master's, immediately before the first byte of the request is written.
//
// All of it runs in the caller's goroutine. When ctx ends, the connection is
// closed, which ends any read or write on it. Nothing outlives the call.
func (c *Client) ask(ctx context.Context, build func() ([]byte, error)) (answer []byte, fail *failure) {
	attempted := false
	// zmq4 slices what a peer sends without looking (Property.Write does), so
	// bytes of a hostile peer can panic it. The connection is dropped anyway.
	defer func() {
		if r := recover(); r != nil {
			c.stats.panics.Add(1)
			fail = &failure{attempted, ReasonUnintelligible, fmt.Errorf("zmq4 panicked on the peer's bytes: %v", r)}
			if !attempted {
				fail.reason = ReasonHandshake
			}
		}
	}()
	failed := func(r Reason, err error) ([]byte, *failure) {
		if e := ctx.Err(); e != nil {
			r, err = ReasonCancelled, errors.Join(e, err)
			if attempted {
				r = ReasonTimeout
			}
		}
		return nil, &failure{attempted, r, err}
	}

	if err := checkListener(c.proc, c.addr, c.allowed); err != nil {
		if errors.Is(err, errForeign) {
			c.stats.foreign.Add(1)
			return failed(ReasonListener, err)
		}
		return failed(ReasonConnect, err)
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", c.addr.String())
	if err != nil {
		return failed(ReasonConnect, err)
	}
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()

	guard := &frameGuard{Conn: raw}
	conn, err := zmq4.Open(guard, null.Security(), zmq4.Req, nil, false, nil)
	if err != nil {
		return failed(ReasonHandshake, err)
	}
	// The handshake was answered, so the connection was accepted by somebody:
	// now the kernel knows by whom.
	if err := checkPeer(c.proc, addrPort(raw.LocalAddr()), addrPort(raw.RemoteAddr()), c.allowed); err != nil {
		c.stats.foreign.Add(1)
		return failed(ReasonListener, err)
	}
	request, err := build()
	if err != nil {
		return failed(ReasonKeyFile, err)
	}
	if ctx.Err() != nil {
		return failed(ReasonCancelled, ctx.Err())
	}
	attempted = true
	// REQ puts an empty frame before the request.
	if err := conn.SendMsg(zmq4.NewMsgFrom(nil, request)); err != nil {
		return failed(ReasonConnection, err)
	}
	return receive(conn, failed)
}

// receive takes the first message that isn't a ZMTP command. zmq4 answers a
// PING by itself. The guard bounds how many commands a peer can send.
func receive(conn *zmq4.Conn, failed func(Reason, error) ([]byte, *failure)) ([]byte, *failure) {
	for {
		msg, err := conn.RecvMsg()
		switch {
		case errors.Is(err, errFrame):
			return failed(ReasonUnintelligible, err)
		case err != nil:
			return failed(ReasonConnection, err)
		case msg.Type == zmq4.CmdMsg:
			continue
		case len(msg.Frames) != 2 || len(msg.Frames[0]) != 0:
			return failed(ReasonUnintelligible, errors.New("an answer of other frames than REQ/REP has"))
		}
		return msg.Frames[1], nil
	}
}

// frameGuard reads along what the peer sends and refuses a frame beyond the
// limit before zmq4 sees the end of its header: zmq4 allocates whatever size a
// header announces, which ends the process.
type frameGuard struct {
	net.Conn
	total   int    // bytes seen
	header  []byte // of the frame that is being read
	payload uint64 // bytes of the frame's payload still to come
}

// Read implements net.Conn.
func (g *frameGuard) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if bad := g.pass(p[:n]); bad >= 0 {
		return bad, errFrame
	}
	return n, err
}

// pass follows the frames through b; the index of the byte that ends a refused
// header, or -1.
func (g *frameGuard) pass(b []byte) int {
	for i := 0; i < len(b); {
		if g.total >= maxTotal {
			return i
		}
		if g.total < greetingSize {
			step := min(len(b)-i, greetingSize-g.total)
			g.total += step
			i += step
			continue
		}
		if g.payload > 0 {
			step := int(min(uint64(len(b)-i), g.payload)) // #nosec G115 -- not above len(b)
			g.total += step
			g.payload -= uint64(step) // #nosec G115 -- not negative
			i += step
			continue
		}
		g.header = append(g.header, b[i])
		size, whole := frameSize(g.header)
		if whole {
			if size > maxAnswer {
				return i
			}
			g.payload = size
			g.header = g.header[:0]
		}
		g.total++
		i++
	}
	return -1
}

// frameSize reads a ZMTP frame header: flags, then one byte or, with the long
// bit, eight of size.
func frameSize(header []byte) (size uint64, whole bool) {
	const longBit = 0x02
	switch {
	case len(header) < 2:
		return 0, false
	case header[0]&longBit == 0:
		return uint64(header[1]), true
	case len(header) < 9:
		return 0, false
	}
	return binary.BigEndian.Uint64(header[1:9]), true
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// counters are Stats while they count.
type counters struct {
	outcomes               [Unknown + 1]atomic.Uint64
	keyPrints, keyFailures atomic.Uint64
	foreign, panics        atomic.Uint64
}

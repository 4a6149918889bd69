//go:build salt

package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// deed is what the relay before 4506 does with one request.
type deed int

const (
	pass           deed = iota
	dropRequest         // it never reaches the master
	cutRequest          // half of it does, then both connections end
	holdRequest         // it waits for release, and goes out though nobody waits for the answer
	repeatRequest       // it goes out twice, over two connections
	dropReply           // done, no answer
	delayReply          // done, the answer comes 60 s later
	cutReply            // done, half of the answer, then closed
	replyDelay     = 60 * time.Second
	maxZMTPMessage = 4 << 20
)

// relay stands between masterd and the master's request channel. It reads ZMTP
// as far as it must to know one request from another.
type relay struct {
	ln       net.Listener
	upstream string
	quit     chan struct{}
	done     sync.WaitGroup

	mu       sync.Mutex
	rules    []*rule
	requests map[string]int // "function target": how often masterd sent it
}

// rule is for requests whose bytes hold all of the words; once.
type rule struct {
	words   [][]byte
	do      deed
	release chan struct{} // for holdRequest
	hit     chan struct{} // closed when it was applied
}

func newRelay(upstream string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, upstream: upstream, quit: make(chan struct{}), requests: map[string]int{}}
	r.done.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r.done.Go(func() { r.carry(conn) })
		}
	})
	return r, nil
}

func (r *relay) port() int { return r.ln.Addr().(*net.TCPAddr).Port }

func (r *relay) close() {
	close(r.quit)
	_ = r.ln.Close()
	r.done.Wait()
}

// plan sets what happens to the next request that holds these words.
func (r *relay) plan(do deed, words ...string) *rule {
	p := &rule{do: do, release: make(chan struct{}), hit: make(chan struct{})}
	for _, w := range words {
		p.words = append(p.words, []byte(w))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, p)
	return p
}

func (r *relay) deedFor(message []byte) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.rules {
		all := true
		for _, w := range p.words {
			all = all && bytes.Contains(message, w)
		}
		if all {
			r.rules = append(r.rules[:i:i], r.rules[i+1:]...)
			close(p.hit)
			return p
		}
	}
	return &rule{}
}

// carry serves one connection of masterd's, which carries one request.
func (r *relay) carry(down net.Conn) {
	defer func() { _ = down.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.done.Go(func() { // ends all of it with the relay
		select {
		case <-r.quit:
			_ = down.Close()
			cancel()
		case <-ctx.Done():
		}
	})
	up, err := new(net.Dialer).DialContext(ctx, "tcp", r.upstream)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = up.Close() })
	defer stop()

	replies := &gate{down: down, quit: r.quit}
	ended := make(chan struct{})
	r.done.Go(func() { defer close(ended); replies.copy(up) })

	var opening bytes.Buffer // greeting and READY: what a second connection must say first
	greeting := make([]byte, 64)
	if _, err := io.ReadFull(down, greeting); err != nil {
		return
	}
	opening.Write(greeting)
	if _, err := up.Write(greeting); err != nil {
		return
	}
	for {
		raw, command, err := readZMTP(down)
		if err != nil {
			break
		}
		if command {
			opening.Write(raw)
			_, _ = up.Write(raw)
			continue
		}
		p := r.deedFor(raw)
		replies.set(p.do)
		if !r.forward(p, raw, opening.Bytes(), up) {
			return
		}
	}
	if p := replies.current(); p == delayReply || p == dropReply {
		return // masterd gave up
	}
	_ = up.Close()
	<-ended
}

// forward says whether the connection goes on.
func (r *relay) forward(p *rule, raw, opening []byte, up net.Conn) bool {
	switch p.do {
	case dropRequest:
		return true
	case cutRequest:
		_, _ = up.Write(raw[:len(raw)/2])
		return false
	case holdRequest:
		select {
		case <-p.release:
		case <-r.quit:
			return false
		}
		r.again(opening, raw) // the old connection may have been given up by the master
		return false
	case repeatRequest:
		r.done.Go(func() { r.again(opening, raw) })
	case pass, dropReply, delayReply, cutReply:
	}
	_, err := up.Write(raw)
	return err == nil
}

// again sends a request over a connection of its own.
func (r *relay) again(opening, raw []byte) {
	up, err := net.Dial("tcp", r.upstream)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	_ = up.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := up.Write(opening[:64]); err != nil {
		return
	}
	if _, err := io.ReadFull(up, make([]byte, 64)); err != nil {
		return
	}
	if _, err := up.Write(append(bytes.Clone(opening[64:]), raw...)); err != nil {
		return
	}
	for { // READY, then the answer
		_, command, err := readZMTP(up)
		if err != nil || !command {
			return
		}
	}
}

// gate carries replies, or doesn't.
type gate struct {
	down net.Conn
	quit chan struct{}
	mu   sync.Mutex
	do   deed
}

func (g *gate) set(do deed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.do = do
}

func (g *gate) current() deed {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.do
}

func (g *gate) copy(up net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if n > 0 {
			switch g.current() {
			case dropReply:
				n = 0
			case delayReply:
				select {
				case <-time.After(replyDelay):
				case <-g.quit:
				}
			case cutReply:
				_, _ = g.down.Write(buf[:n/2])
				_ = g.down.Close()
				return
			case pass, dropRequest, cutRequest, holdRequest, repeatRequest:
			}
			if _, werr := g.down.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readZMTP reads one command, or one message with all its frames, as raw bytes.
func readZMTP(r io.Reader) (raw []byte, command bool, err error) {
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, false, err
		}
		size := uint64(head[1])
		if head[0]&0x02 != 0 {
			rest := make([]byte, 7)
			if _, err := io.ReadFull(r, rest); err != nil {
				return nil, false, err
			}
			size = binary.BigEndian.Uint64(append([]byte{head[1]}, rest...))
			head = append(head, rest...)
		}
		if size > maxZMTPMessage {
			return nil, false, errors.New("a frame beyond all sense")
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, false, err
		}
		raw = append(append(raw, head...), body...)
		if head[0]&0x04 != 0 {
			return raw, true, nil
		}
		if head[0]&0x01 == 0 {
			return raw, false, nil
		}
	}
}

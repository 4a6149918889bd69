// Package reqtest is a fake of the Salt master's request channel, with the
// faults that a real one can't be asked for, and the contract suite that the
// fake and real masters both pass (Exercise).
package reqtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/saltreq"
)

// Login is the publisher_acl user of the fake.
const Login = "oduflow"

// Fault is what the fake does wrong, from now on.
type Fault uint8

// The faults. Those from AnswerNothing on come after the publish was done:
// the work is done and the answer is lost, or says something else.
const (
	None            Fault = iota
	CloseAtOnce           // accepts and closes
	SilentGreeting        // accepts and says nothing
	NotZMTP               // greets in HTTP
	MalformedReady        // a READY that panics zmq4
	HugeReady             // a READY frame of 2^62 bytes
	RefuseKey             // AuthenticationError, with any key
	Forbid                // AuthorizationError, for any function
	BadLoad               // the string "bad load", and nothing done
	AnswerNothing         // done, no answer
	CloseAfter            // done, then the connection is closed
	CutAnswer             // done, half of the answer, then closed
	OtherJID              // done, the answer names another JID
	OtherMinions          // done, the answer names another minion too
	NullJID               // done, jid nil without an error text
	Garbage               // done, the answer isn't msgpack
	Nested                // done, the answer is a list in a list, 60,000 times
	HugeAnswer            // done, the answer is a frame of 2^62 bytes
	LargeAnswer           // done, the answer is a frame of 100 MB, slowly
	ExceptionString       // done, "Some exception handling minion payload"
	ErrorAndLoad          // done, an AuthenticationError beside a load
	faults                // how many there are
)

// Faults gives all but None.
func Faults() []Fault {
	var out []Fault
	for f := None + 1; f < faults; f++ {
		out = append(out, f)
	}
	return out
}

// DoneFirst says whether the publish was done before the fault.
func (f Fault) DoneFirst() bool { return f >= AnswerNothing }

// BeforeRequest says whether the fault comes before a request can be read.
func (f Fault) BeforeRequest() bool { return f >= CloseAtOnce && f <= HugeReady }

// Load is a publish that the fake has taken.
type Load struct {
	Fun, Target, Arg, JID, User string
	Raw                         []byte // the whole request
}

// Master is the fake. Everything may be called at any time.
type Master struct {
	tb    testing.TB
	ln    net.Listener
	cache string
	done  sync.WaitGroup

	mu        sync.Mutex
	fault     Fault
	key       string
	accepted  map[string]string // id to PEM
	pending   map[string]string
	forbidden map[string]bool
	loads     []Load
	onPublish func(Load)
	conns     map[net.Conn]bool
	accepts   int
}

// New starts a fake with a cachedir of its own. It ends with the test.
func New(tb testing.TB) *Master {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	m := &Master{
		tb: tb, ln: ln, cache: tb.TempDir(), key: "cmVxdGVzdCBrZXkgMQ==",
		accepted: map[string]string{}, pending: map[string]string{},
		forbidden: map[string]bool{}, conns: map[net.Conn]bool{},
	}
	m.WriteKey(m.key)
	m.done.Go(m.accept)
	tb.Cleanup(m.Close)
	return m
}

// Close ends the fake and all its connections.
func (m *Master) Close() {
	_ = m.ln.Close()
	m.mu.Lock()
	for c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.done.Wait()
}

// Config is a configuration for this fake.
func (m *Master) Config() saltreq.Config {
	return saltreq.Config{
		Address:    "tcp://" + m.ln.Addr().String(),
		MasterUser: strconv.Itoa(os.Geteuid()),
		User:       Login,
		CacheDir:   m.cache,
	}
}

// Client is a client of this fake.
func (m *Master) Client() *saltreq.Client {
	m.tb.Helper()
	c, err := saltreq.New(m.Config())
	if err != nil {
		m.tb.Fatal(err)
	}
	return c
}

// KeyPath is the login key's file.
func (m *Master) KeyPath() string { return filepath.Join(m.cache, "."+Login+"_key") }

// WriteKey writes the login key's file, and nothing else: the master goes on
// with the key that it has.
func (m *Master) WriteKey(key string) {
	m.tb.Helper()
	if err := os.WriteFile(m.KeyPath(), []byte(key), 0o600); err != nil {
		m.tb.Fatal(err)
	}
}

// Restart makes a new key, as every start of a master does.
func (m *Master) Restart(key string) {
	m.mu.Lock()
	m.key = key
	m.mu.Unlock()
	m.WriteKey(key)
}

// Inject sets the fault for all that follows.
func (m *Master) Inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Accept adds an accepted key.
func (m *Master) Accept(id, pem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted[id] = pem
}

// Pend adds a key that waits for acceptance.
func (m *Master) Pend(id, pem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[id] = pem
}

// Forbid takes a function out of the login's ACL.
func (m *Master) Forbid(f saltreq.Function) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forbidden[f.String()] = true
}

// OnPublish is called with every publish that was done, before its answer.
func (m *Master) OnPublish(f func(Load)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onPublish = f
}

// Published gives the publishes that were done, in order.
func (m *Master) Published() []Load {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.loads)
}

// Accepts says how many connections there have been.
func (m *Master) Accepts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accepts
}

func (m *Master) accept() {
	for {
		conn, err := m.ln.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns[conn] = true
		m.accepts++
		m.mu.Unlock()
		m.done.Go(func() {
			defer func() {
				_ = conn.Close()
				m.mu.Lock()
				delete(m.conns, conn)
				m.mu.Unlock()
			}()
			m.serve(conn)
		})
	}
}

func (m *Master) serve(conn net.Conn) {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if !handshake(conn, fault) {
		return
	}
	for {
		frames, err := readMessage(conn)
		if err != nil {
			return
		}
		if len(frames) != 2 || len(frames[0]) != 0 {
			m.tb.Errorf("reqtest: a request of %d frames", len(frames))
			return
		}
		m.mu.Lock()
		fault = m.fault
		m.mu.Unlock()
		answer := m.answer(frames[1], fault)
		if !send(conn, fault, answer) {
			return
		}
	}
}

// answer does what ClearFuncs does, and gives the whole answer.
func (m *Master) answer(raw []byte, fault Fault) any {
	var req struct {
		Enc     string         `msgpack:"enc"`
		Version int            `msgpack:"version"`
		Load    map[string]any `msgpack:"load"`
	}
	if err := msgpack.Unmarshal(raw, &req); err != nil || req.Enc != "clear" || req.Version < 3 || fault == BadLoad {
		return "bad load"
	}
	m.mu.Lock()
	key := m.key
	m.mu.Unlock()
	authentic := req.Load["key"] == key && fault != RefuseKey
	switch req.Load["cmd"] {
	case "wheel":
		if !authentic {
			return fail("UserAuthenticationError", `Authentication failure of type "user" occurred`)
		}
		return m.keyPrint(req.Load)
	case "publish":
		if !authentic {
			return fail("AuthenticationError", "Authentication error occurred.")
		}
		return m.publish(req.Load, raw, fault)
	}
	return map[string]any{}
}

func fail(name, message string) map[string]any {
	return map[string]any{"error": map[string]any{"name": name, "message": message}}
}

func (m *Master) keyPrint(load map[string]any) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, _ := load["match"].(string)
	ret := map[string]any{}
	if pem, ok := m.accepted[id]; ok {
		ret["minions"] = map[string]any{id: pem}
	}
	if pem, ok := m.pending[id]; ok {
		ret["minions_pre"] = map[string]any{id: pem}
	}
	return map[string]any{"tag": "salt/wheel/20261130181033417609", "data": map[string]any{
		"fun": "wheel.key.print", "jid": "20261130181033417609", "user": "root", "success": true, "return": ret,
	}}
}

func (m *Master) publish(load map[string]any, raw []byte, fault Fault) any {
	one := func(v any) string {
		if list, ok := v.([]any); ok && len(list) == 1 {
			v = list[0]
		}
		s, _ := v.(string)
		return s
	}
	l := Load{Fun: one(load["fun"]), Target: one(load["tgt"]), Arg: one(load["arg"]), JID: one(load["jid"]), User: one(load["user"]), Raw: raw}
	m.mu.Lock()
	_, known := m.accepted[l.Target]
	forbidden := m.forbidden[l.Fun] || fault == Forbid
	hook := m.onPublish
	if known && !forbidden {
		m.loads = append(m.loads, l)
	}
	m.mu.Unlock()
	if forbidden {
		return fail("AuthorizationError", "Authorization error occurred.")
	}
	if !known {
		return answerOf(map[string]any{"jid": nil, "minions": []any{}, "error": "Master could not resolve minions for target " + l.Target})
	}
	if hook != nil {
		hook(l)
	}
	done := map[string]any{"jid": l.JID, "minions": []any{l.Target}, "missing": []any{}}
	switch fault { //nolint:exhaustive // the faults that change what the answer says
	case OtherJID:
		done["jid"] = "20200101000000000000"
	case OtherMinions:
		done["minions"] = []any{l.Target, "other"}
	case NullJID:
		done = map[string]any{"jid": nil, "minions": []any{}}
	case ExceptionString:
		return "Some exception handling minion payload"
	case ErrorAndLoad:
		both := fail("AuthenticationError", "Authentication error occurred.")
		both["load"] = done
		return both
	}
	return answerOf(done)
}

func answerOf(load map[string]any) map[string]any {
	return map[string]any{"enc": "clear", "load": load}
}

// handshake greets; it says whether a request may follow.
func handshake(conn net.Conn, fault Fault) bool {
	ready := append([]byte("\x05READY"), "\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"...)
	switch fault { //nolint:exhaustive // the faults of a handshake
	case CloseAtOnce:
		return false
	case SilentGreeting:
		_, _ = io.Copy(io.Discard, conn)
		return false
	case NotZMTP:
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return false
	case MalformedReady:
		ready = []byte("\x05READY\x03So")
	}
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := conn.Write(greeting); err != nil {
		return false
	}
	if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
		return false
	}
	if fault == HugeReady {
		_, _ = conn.Write(hugeHeader(0x06))
		_, _ = io.Copy(io.Discard, conn)
		return false
	}
	if _, err := conn.Write(append([]byte{0x04, byte(len(ready))}, ready...)); err != nil {
		return false
	}
	_, err := readMessage(conn) // the client's READY
	return err == nil
}

func hugeHeader(flags byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags}, 1<<62)
}

// send writes an answer; it says whether the connection stays.
func send(conn net.Conn, fault Fault, answer any) bool {
	raw, err := msgpack.Marshal(answer)
	if err != nil {
		panic(err) //nolint:forbidigo // our own answer can't be encoded
	}
	switch fault { //nolint:exhaustive // the faults of an answer
	case AnswerNothing:
		_, _ = io.Copy(io.Discard, conn)
		return false
	case CloseAfter:
		return false
	case CutAnswer:
		whole := frames(nil, raw)
		_, _ = conn.Write(whole[:len(whole)/2])
		return false
	case Garbage:
		raw = []byte{0xc1, 0xc1, 0xff, 0x00}
	case Nested:
		raw = bytes.Repeat([]byte{0x91}, 60000)
	case HugeAnswer:
		_, _ = conn.Write(append([]byte{0x01, 0x00}, hugeHeader(0x02)...))
		_, _ = io.Copy(io.Discard, conn)
		return false
	case LargeAnswer:
		_, _ = conn.Write(append([]byte{0x01, 0x00}, binary.BigEndian.AppendUint64([]byte{0x02}, 100<<20)...))
		_, _ = conn.Write(make([]byte, 1<<20))
		return false
	}
	_, err = conn.Write(frames(nil, raw))
	return err == nil
}

// frames writes a message of two frames.
func frames(first, second []byte) []byte {
	out := append([]byte{0x01, byte(len(first))}, first...)
	if len(second) < 256 {
		out = append(out, 0x00, byte(len(second)))
	} else {
		out = binary.BigEndian.AppendUint64(append(out, 0x02), uint64(len(second)))
	}
	return append(out, second...)
}

func readMessage(r io.Reader) ([][]byte, error) {
	var out [][]byte
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, err
		}
		size := uint64(head[1])
		if head[0]&0x02 != 0 {
			rest := make([]byte, 7)
			if _, err := io.ReadFull(r, rest); err != nil {
				return nil, err
			}
			size = binary.BigEndian.Uint64(append([]byte{head[1]}, rest...))
		}
		if size > 1<<20 {
			return nil, errors.New("reqtest: a frame too large")
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		out = append(out, body)
		if head[0]&0x01 == 0 {
			return out, nil
		}
	}
}

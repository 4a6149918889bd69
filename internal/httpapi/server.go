package httpapi

import (
	"encoding/json"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// ExitHeader carries, on every answer, the exit status that programs and the
// Salt runner end with.
const ExitHeader = "Oduflow-Exit"

// Server answers the entry points. Make one with New; it may serve any number
// of listeners.
type Server struct {
	cfg    Config
	routes map[string]map[string]route
	waits  chan struct{} // one place for each call that may wait

	refused atomic.Uint64 // connections of addresses that had their share

	closing   chan struct{} // closed when the first of the listeners is told to end
	closeOnce sync.Once
}

// route is one entry point.
type route struct {
	answer func(*call) // checks access first
	unix   bool        // there is no such thing over TLS
}

// New makes a Server.
func New(cfg Config) *Server {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	s := &Server{cfg: cfg, waits: make(chan struct{}, cfg.Limits.WaitingCalls), closing: make(chan struct{})}
	s.routes = map[string]map[string]route{
		"/v1/health":         {http.MethodGet: {answer: (*call).health}},
		"/v1/custom_start":   {http.MethodPost: {answer: (*call).customStart}},
		"/v1/custom_status":  {http.MethodPost: {answer: (*call).customStatus}},
		"/v1/state_validate": {http.MethodPost: {answer: (*call).stateValidate}},
	}
	if cfg.Operator != nil {
		s.routes["/v1/operator/adopt"] = map[string]route{http.MethodPost: {answer: (*call).adopt, unix: true}}
		s.routes["/v1/operator/token_create"] = map[string]route{http.MethodPost: {answer: (*call).tokenCreate, unix: true}}
		s.routes["/v1/operator/token_list"] = map[string]route{http.MethodPost: {answer: (*call).tokenList, unix: true}}
		s.routes["/v1/operator/token_revoke"] = map[string]route{http.MethodPost: {answer: (*call).tokenRevoke, unix: true}}
	}
	if cfg.Receipts != nil {
		s.routes["/v1/operator/receipts_list"] = map[string]route{http.MethodPost: {answer: (*call).receiptsList, unix: true}}
		s.routes["/v1/operator/receipts_show"] = map[string]route{http.MethodPost: {answer: (*call).receiptsShow, unix: true}}
		s.routes["/v1/operator/evidence"] = map[string]route{http.MethodPost: {answer: (*call).evidence, unix: true}}
		s.routes["/v1/operator/reconcile"] = map[string]route{http.MethodPost: {answer: (*call).reconcile, unix: true}}
	}
	return s
}

// NewHandler is the API as a plain handler. Calls that didn't come through one
// of the Server's own listeners count as calls over TLS.
func NewHandler(cfg Config) http.Handler { return New(cfg) }

// call is one call under way.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	path string // one of ours, or "other"
	peer peer

	log      hclog.Logger
	svc      Service
	op       Operator
	receipts Receipts
	tokens   Tokens
	limits   Limits
	lab      bool
	ownUID   uint32
	waits    chan struct{}
	refused  *atomic.Uint64

	closing <-chan struct{}

	// For the log line.
	status  int
	code    problem.Code
	token   string
	request string
}

// ServeHTTP answers one call and logs it in one line.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.cfg.Now()
	c := &call{
		w: w, r: r, path: "other", peer: peerFrom(r.Context()),
		log: s.cfg.Logger, svc: s.cfg.Service, op: s.cfg.Operator, receipts: s.cfg.Receipts, tokens: s.cfg.Tokens,
		limits: s.cfg.Limits, lab: s.cfg.Lab, ownUID: s.cfg.OwnUID, waits: s.waits, refused: &s.refused, closing: s.closing,
	}
	defer func() {
		if recover() != nil {
			c.panicked()
		}
		c.logLine(s.cfg.Now().Sub(began))
	}()
	s.dispatch(c)
}

func (s *Server) dispatch(c *call) {
	methods, ok := s.routes[c.r.URL.Path]
	if ok && !c.peer.unix && unixOnly(methods) {
		ok = false
	}
	if !ok {
		c.fail(problem.New(problem.NotFound, "there is no such entry point").
			WithHint("the entry points are custom_start, custom_status, state_validate and health, under /v1/"))
		return
	}
	c.path = c.r.URL.Path
	entry, ok := methods[c.r.Method]
	if !ok {
		allow := allowed(methods)
		c.w.Header().Set("Allow", allow)
		c.fail(problem.New(problem.MethodNotAllowed, "%s takes %s only", c.path, allow))
		return
	}
	if c.r.URL.RawQuery != "" {
		c.fail(problem.New(problem.BadRequest, "%s takes no query; its fields go into the body", c.path))
		return
	}
	entry.answer(c)
}

func unixOnly(methods map[string]route) bool {
	for _, entry := range methods {
		if !entry.unix {
			return false
		}
	}
	return true
}

func allowed(methods map[string]route) string {
	var names []string
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// panicked answers a defect of ours. The panic's own text may hold anything,
// so the log gets the stack alone.
func (c *call) panicked() {
	c.log.Error("call panicked", "path", c.path, "stack", string(debug.Stack()))
	if c.status == 0 {
		c.fail(problem.New(problem.Internal, "something went wrong inside; the log has the details"))
	}
}

// unencodable is the answer where the right one couldn't be written.
const unencodable = `{"error":{"code":"internal","message":"something went wrong inside; the log has the details",` +
	`"hint":null,"line":null,"column":null}}`

// send writes the one answer of a call.
func (c *call) send(status, exit int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		c.log.Error("an answer can't be encoded", "path", c.path, "error", err)
		c.code, status, exit = problem.Internal, http.StatusInternalServerError, problem.ExitFailed
		encoded = []byte(unencodable)
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(encoded)+1))
	h.Set(ExitHeader, strconv.Itoa(exit))
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="oduflow"`)
	}
	c.status = status
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(encoded, '\n')) // a caller that went away asks again
}

func (c *call) logLine(took time.Duration) {
	args := []any{"path", c.path, "peer", c.peer.String(), "status", c.status, "ms", took.Milliseconds()}
	if c.peer.known {
		args = append(args, "pid", c.peer.pid)
	}
	if c.token != "" {
		args = append(args, "token", c.token)
	}
	if c.request != "" {
		args = append(args, "request", c.request)
	}
	if c.code != "" {
		args = append(args, "code", string(c.code))
	}
	if c.path == "/v1/health" && c.status == http.StatusOK {
		c.log.Debug("call", args...) // probes come all the time
		return
	}
	c.log.Info("call", args...)
}

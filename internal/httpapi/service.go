package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/start"
)

func (c *call) customStart() {
	request, err := c.readCustomStart()
	if err != nil {
		c.fail(err)
		return
	}
	answer, err := c.svc.CustomStart(c.r.Context(), request)
	c.sendAnswer(answer, err)
}

func (c *call) readCustomStart() (start.CustomRequest, error) {
	var request start.CustomRequest
	if err := c.allow(token.Custom); err != nil {
		return request, err
	}
	body, err := c.readBody()
	if err != nil {
		return request, err
	}
	request, err = decodeCustomStart(body)
	c.request = request.Request
	return request, err
}

// decodeCustomStart checks a whole body of custom_start. On an error the
// request's UUID is there as far as it could be read, for the log.
func decodeCustomStart(body []byte) (start.CustomRequest, error) {
	var r start.CustomRequest
	fields, err := decodeObject(body, "request", "target", "instance", "source", "revision", "digest",
		"previous", "again", "requester", "accept_until")
	if err != nil {
		return r, err
	}
	if r.Request, err = fields.uuid("request", true); err != nil {
		return r, err
	}
	if r.Target, err = fields.target(); err != nil {
		return r, err
	}
	if r.Instance, err = fields.uuid("instance", true); err != nil {
		return r, err
	}
	source, err := fields.mustText("source")
	if err != nil {
		return r, err
	}
	r.Source = []byte(source)
	revision, ok, err := fields.integer("revision", MaxRevision)
	switch {
	case err != nil:
		return r, err
	case !ok:
		return r, badField("revision", "is missing")
	}
	r.Revision = revision
	if r.Digest, err = fields.digest(); err != nil {
		return r, err
	}
	if r.Previous, err = fields.uuid("previous", false); err != nil {
		return r, err
	}
	if r.Previous != "" && r.Previous == r.Request {
		return r, badField("previous", "names the request itself")
	}
	if r.Again, err = fields.flag("again"); err != nil {
		return r, err
	}
	if r.Requester, err = fields.label("requester", MaxRequester); err != nil {
		return r, err
	}
	r.AcceptUntil, err = fields.moment("accept_until")
	return r, err
}

func (c *call) customStatus() {
	request, wait, err := c.readCustomStatus()
	if err != nil {
		c.fail(err)
		return
	}
	answer, err := c.statusAfter(request, wait)
	c.sendAnswer(answer, err)
}

// statusAfter asks for a status and waits for a change where there is a place
// among the calls that wait; where none is left the call is answered at once,
// and poll_after_s tells the caller when to come again. A wait ends early when
// the server is told to end.
func (c *call) statusAfter(request string, wait time.Duration) (start.Answer, error) {
	ctx := c.r.Context()
	if wait == 0 {
		return c.svc.CustomStatus(ctx, request, 0)
	}
	select {
	case c.waits <- struct{}{}:
		defer func() { <-c.waits }()
	default:
		return c.svc.CustomStatus(ctx, request, 0)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-waiting.Done():
		}
	}()
	answer, err := c.svc.CustomStatus(waiting, request, wait)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return c.svc.CustomStatus(ctx, request, 0)
	}
	return answer, err
}

func (c *call) readCustomStatus() (request string, wait time.Duration, err error) {
	if err = c.allow(token.Status); err != nil {
		return "", 0, err
	}
	body, err := c.readBody()
	if err != nil {
		return "", 0, err
	}
	request, wait, err = decodeCustomStatus(body)
	c.request = request
	return request, wait, err
}

func decodeCustomStatus(body []byte) (request string, wait time.Duration, err error) {
	fields, err := decodeObject(body, "request", "wait_s")
	if err != nil {
		return "", 0, err
	}
	if request, err = fields.uuid("request", true); err != nil {
		return "", 0, err
	}
	seconds, _, err := fields.integer("wait_s", MaxWait)
	return request, time.Duration(seconds) * time.Second, err
}

func (c *call) sendAnswer(answer start.Answer, err error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.code = answer.Execution.Code
	c.send(http.StatusOK, exitOfStatus(answer.Status), answerOf(answer))
}

func (c *call) stateValidate() {
	source, err := c.readStateValidate()
	if err != nil {
		c.fail(err)
		return
	}
	v := c.svc.StateValidate(c.r.Context(), source)
	exit := problem.ExitOK
	if !v.OK {
		exit = problem.ExitUsage
	}
	// A source that was judged is an answered call, whatever the judgement.
	c.send(http.StatusOK, exit, validationOf(v))
}

func (c *call) readStateValidate() ([]byte, error) {
	if err := c.allow(token.Validate); err != nil {
		return nil, err
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	fields, err := decodeObject(body, "source")
	if err != nil {
		return nil, err
	}
	source, err := fields.mustText("source")
	return []byte(source), err
}

// health is the one entry point without a token, and says no more than ok then.
func (c *call) health() {
	full := c.peer.unix
	if !full && len(c.r.Header.Values("Authorization")) > 0 {
		if _, err := c.bearer(); err != nil {
			c.fail(err)
			return
		}
		full = true
	}
	h := c.svc.Health(c.r.Context())
	status, exit := http.StatusOK, problem.ExitOK
	if !h.OK {
		status, exit = http.StatusServiceUnavailable, problem.ExitUnavailable
		c.code = h.Code
		c.setRetryAfter(problem.RowOf(h.Code))
	}
	if full {
		c.send(status, exit, healthOf(h, c.refused.Load()))
		return
	}
	c.send(status, exit, publicHealthJSON{OK: h.OK})
}

package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Client calls masterd over its Unix socket, for masterd's own commands.
type Client struct {
	http   *http.Client
	socket string
}

// maxReply bounds what the client reads of an answer.
const maxReply = 4 << 20

// NewClient makes a client of the socket at path. Nothing is dialled yet.
func NewClient(path string) *Client {
	return &Client{socket: path, http: &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
			DisableKeepAlives: true, // one command, one call
		},
	}}
}

// Reply is an answer as it came.
type Reply struct {
	Status int
	Exit   int // what a program that only passes the answer on ends with
	Body   json.RawMessage
}

// Get asks an entry point that takes no body.
func (c *Client) Get(ctx context.Context, path string) (Reply, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// Post calls an entry point with in as its fields. The error is unreachable
// where nobody answered; an answer that refuses is a Reply, see Err.
func (c *Client) Post(ctx context.Context, path string, in any) (Reply, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return Reply{}, problem.Wrap(problem.Internal, err, "a call can't be encoded")
	}
	return c.do(ctx, http.MethodPost, path, body)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (Reply, error) {
	unreachable := func(err error) error {
		return problem.Wrap(problem.Unreachable, err, "masterd doesn't answer on %s", c.socket).
			WithHint("is masterd running, and may this user pass the socket's folder?")
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://masterd"+path, bytes.NewReader(body))
	if err != nil {
		return Reply{}, problem.Wrap(problem.Internal, err, "a call can't be made")
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	if err != nil {
		return Reply{}, unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return Reply{}, unreachable(err)
	}
	exit, err := strconv.Atoi(response.Header.Get(ExitHeader))
	if err != nil || !json.Valid(answer) {
		return Reply{}, problem.New(problem.Unreachable, "what answers on %s isn't masterd", c.socket)
	}
	return Reply{Status: response.StatusCode, Exit: exit, Body: answer}, nil
}

// Err gives the error in an answer that refuses, with the code that masterd
// gave, and nil for any other answer. Several errors of a source are joined.
func (r Reply) Err() error {
	if r.Status < http.StatusBadRequest {
		return nil
	}
	var f failureJSON
	if err := json.Unmarshal(r.Body, &f); err != nil || f.Error.Code == "" {
		return nil // such as a health answer that isn't ok
	}
	if len(f.Errors) == 0 {
		return f.Error.problem()
	}
	all := make([]error, 0, len(f.Errors))
	for _, e := range f.Errors {
		all = append(all, e.problem())
	}
	return errors.Join(all...)
}

func (j errorJSON) problem() *problem.Error {
	e := &problem.Error{Code: j.Code, Message: j.Message}
	if j.Hint != nil {
		e.Hint = *j.Hint
	}
	if j.Line != nil && j.Column != nil {
		e.Line, e.Column = *j.Line, *j.Column
	}
	return e
}

// Adopt records a server that was configured before we came.
func (c *Client) Adopt(ctx context.Context, target, instance, reason string) (AdoptAnswer, error) {
	return c.Replace(ctx, target, "", instance, reason)
}

// Replace records a server whose minion was renamed from old to target.
func (c *Client) Replace(ctx context.Context, target, old, instance, reason string) (AdoptAnswer, error) {
	fields := map[string]string{"target": target, "instance": instance, "reason": reason}
	if old != "" {
		fields["replaces"] = old
	}
	var out AdoptAnswer
	err := c.into(ctx, "/v1/operator/adopt", fields, &out)
	return out, err
}

// TokenCreate makes a token and gives its text, which nobody can ask for again.
func (c *Client) TokenCreate(ctx context.Context, scope token.Scope, name string) (text string, t token.Token, err error) {
	var out newTokenJSON
	if err := c.into(ctx, "/v1/operator/token_create", map[string]string{"scope": string(scope), "name": name}, &out); err != nil {
		return "", token.Token{}, err
	}
	t, err = out.token()
	return out.Token, t, err
}

// TokenList gives all tokens, revoked ones too, without their texts.
func (c *Client) TokenList(ctx context.Context) ([]token.Token, error) {
	var out struct {
		Tokens []tokenJSON `json:"tokens"`
	}
	if err := c.into(ctx, "/v1/operator/token_list", struct{}{}, &out); err != nil {
		return nil, err
	}
	list := make([]token.Token, 0, len(out.Tokens))
	for _, j := range out.Tokens {
		t, err := j.token()
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// TokenRevoke ends a token for good.
func (c *Client) TokenRevoke(ctx context.Context, id string) (token.Token, error) {
	var out tokenJSON
	if err := c.into(ctx, "/v1/operator/token_revoke", map[string]string{"id": id}, &out); err != nil {
		return token.Token{}, err
	}
	return out.token()
}

func (c *Client) into(ctx context.Context, path string, in, out any) error {
	reply, err := c.Post(ctx, path, in)
	if err != nil {
		return err
	}
	if err := reply.Err(); err != nil {
		return err
	}
	if reply.Status != http.StatusOK {
		return problem.New(problem.Internal, "masterd answered %s with status %d", path, reply.Status)
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		return problem.Wrap(problem.Internal, err, "masterd's answer to %s can't be read", path)
	}
	return nil
}

func (j tokenJSON) token() (token.Token, error) {
	t := token.Token{ID: j.ID, Scope: j.Scope, Name: j.Name, CreatedBy: j.CreatedBy}
	for _, f := range []struct {
		to   *time.Time
		from *string
	}{{&t.CreatedAt, j.CreatedAt}, {&t.RevokedAt, j.RevokedAt}} {
		if f.from == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, *f.from)
		if err != nil {
			return t, fmt.Errorf("a token's time: %w", err)
		}
		*f.to = at
	}
	return t, nil
}

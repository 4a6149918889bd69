package httpapi

import (
	"net/http"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// operatorFields checks an operator's access and reads the body.
func (c *call) operatorFields(known ...string) (object, error) {
	if err := c.allowOperator(); err != nil {
		return nil, err
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	return decodeObject(body, known...)
}

func (c *call) adopt() {
	request, err := c.readAdopt()
	if err != nil {
		c.fail(err)
		return
	}
	answer, err := c.op.Adopt(c.r.Context(), request)
	if err != nil {
		c.fail(err)
		return
	}
	c.send(http.StatusOK, problem.ExitOK, adoptJSON{
		Target: answer.Target, Instance: answer.Instance, Fingerprint: answer.Fingerprint,
		Ledger: answer.Ledger, Machine: answer.Machine, AdoptedAt: timeOrNull(answer.AdoptedAt),
	})
}

func (c *call) readAdopt() (AdoptRequest, error) {
	r := AdoptRequest{By: c.peer.String()}
	fields, err := c.operatorFields("target", "instance", "replaces", "reason")
	if err != nil {
		return r, err
	}
	if r.Target, err = fields.target(); err != nil {
		return r, err
	}
	if r.Instance, err = fields.uuid("instance", true); err != nil {
		return r, err
	}
	if _, there := fields["replaces"]; there {
		if r.Replaces, err = fields.minion("replaces"); err != nil {
			return r, err
		}
	}
	r.Reason, err = fields.prose("reason", MaxReason)
	return r, err
}

func (c *call) tokenCreate() {
	fields, err := c.operatorFields("scope", "name")
	if err != nil {
		c.fail(err)
		return
	}
	r := TokenRequest{By: c.peer.String()}
	scope, err := fields.mustText("scope")
	if err == nil {
		r.Scope, err = token.ParseScope(scope)
	}
	if err == nil {
		_, err = fields.mustText("name")
	}
	if err == nil {
		r.Name, err = fields.label("name", MaxTokenName)
	}
	if err != nil {
		c.fail(err)
		return
	}
	text, t, err := c.op.TokenCreate(c.r.Context(), r)
	if err != nil {
		c.fail(err)
		return
	}
	c.send(http.StatusOK, problem.ExitOK, newTokenJSON{tokenJSON: tokenOf(t), Token: text})
}

func (c *call) tokenList() {
	_, err := c.operatorFields()
	if err != nil {
		c.fail(err)
		return
	}
	list, err := c.op.TokenList(c.r.Context())
	if err != nil {
		c.fail(err)
		return
	}
	out := make([]tokenJSON, 0, len(list))
	for _, t := range list {
		out = append(out, tokenOf(t))
	}
	c.send(http.StatusOK, problem.ExitOK, map[string][]tokenJSON{"tokens": out})
}

func (c *call) tokenRevoke() {
	fields, err := c.operatorFields("id")
	if err != nil {
		c.fail(err)
		return
	}
	id, err := fields.mustText("id")
	if err == nil && !token.ValidID(id) {
		err = badField("id", "isn't a token's id").WithHint("masterd token list shows them")
	}
	if err != nil {
		c.fail(err)
		return
	}
	t, err := c.op.TokenRevoke(c.r.Context(), id, c.peer.String())
	if err != nil {
		c.fail(err)
		return
	}
	c.send(http.StatusOK, problem.ExitOK, tokenOf(t))
}

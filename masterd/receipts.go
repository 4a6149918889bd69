package main

import (
	"context"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/start"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/version"
)

// tokenStore fits the receipts to what package httpapi asks for.
type tokenStore struct{ db *store.DB }

// Check is part of httpapi.Tokens.
func (s tokenStore) Check(ctx context.Context, hash token.Hash) (token.Token, bool, error) {
	t, err := s.db.TokenByHash(ctx, hash)
	if err != nil || t == nil || !t.RevokedAt.IsZero() {
		return token.Token{}, false, err
	}
	return tokenOf(*t), true, nil
}

func (s tokenStore) create(ctx context.Context, t token.Token, hash token.Hash) error {
	return s.db.CreateToken(ctx, store.Token{
		ID: t.ID, Hash: hash, Scope: string(t.Scope), Name: t.Name, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy,
	})
}

func (s tokenStore) list(ctx context.Context) ([]token.Token, error) {
	stored, err := s.db.Tokens(ctx)
	list := make([]token.Token, 0, len(stored))
	for _, t := range stored {
		list = append(list, tokenOf(t))
	}
	return list, err
}

func (s tokenStore) revoke(ctx context.Context, id, by string) (token.Token, error) {
	t, err := s.db.RevokeToken(ctx, id, by)
	return tokenOf(t), err
}

func tokenOf(t store.Token) token.Token {
	return token.Token{
		ID: t.ID, Scope: token.Scope(t.Scope), Name: t.Name, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy, RevokedAt: t.RevokedAt,
	}
}

// The daemon's side of the callers' entry points.

// CustomStart is part of httpapi.Service.
func (d *daemon) CustomStart(ctx context.Context, r start.CustomRequest) (start.Answer, error) {
	return d.service.CustomStart(ctx, r)
}

// CustomStatus is part of httpapi.Service.
func (d *daemon) CustomStatus(ctx context.Context, request string, wait time.Duration) (start.Answer, error) {
	return d.service.CustomStatus(ctx, request, wait)
}

// StateValidate is part of httpapi.Service.
func (d *daemon) StateValidate(ctx context.Context, source []byte) start.Validation {
	return d.service.StateValidate(ctx, source)
}

// Health is part of httpapi.Service.
func (d *daemon) Health(ctx context.Context) start.Health {
	h := start.Health{Version: version.Version, Epoch: d.db.Epoch(), BusJoined: d.joined()}
	stats, err := d.db.Stats(ctx)
	switch {
	case err != nil || d.db.Writable() != nil:
		h.Code = problem.NotWritable
	case !h.BusJoined:
		h.Code = problem.Deaf
	default:
		h.OK = true
	}
	h.Queued, h.Running, h.Uncertain = stats.Queued, stats.Running, stats.Uncertain
	h.Conflicts, h.Owed = stats.Conflicts, stats.Owed
	counters := d.exchange.Stats()
	h.BadAnswers = counters.BadAnswers.Load() + counters.Strays.Load()
	h.Gaps = d.bus.Stats().Joins + d.bus.Stats().Overflows
	return h
}

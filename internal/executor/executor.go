// Package executor is the contract between minion-executor and the reviewed
// plugins that it runs (go-plugin over gRPC): the handshake, the versions and
// the one call. Plugins import this package and the state language, nothing
// else of ours; the host that launches them is internal/pluginhost.
//
// The wire form needs no generated code: one unary call of a hand-written
// service, with BytesValue both ways.
package executor

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Handshake tells a person who starts a plugin by hand what it is. It protects
// nothing: AutoMTLS and the signed manifest do.
//
// Its number counts changes of the handshake itself. History: 1 is the first.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  1,
	MagicCookieKey:   "ODUFLOW_EXECUTOR_PLUGIN",
	MagicCookieValue: "a6a9e3f4c0d84f0f8b0f6f7e5f1d2c3b",
}

// Version is the newest version of the call that this build speaks. It is
// raised when a message changes its meaning. History: 1 is the first.
const Version = 1

// Name is the name under which a plugin serves its Converter.
const Name = "converter"

// MaxBytes is the size of a question or an answer, far above what the state
// language lets through.
const MaxBytes = 1 << 20

// Converter turns the canonical form of a document into high data, in the form
// in which it goes to the Salt process. It has no effect on the machine.
type Converter interface {
	Convert(ctx context.Context, canonical []byte) ([]byte, error)
}

// Sets gives the plugin sets by version. The host passes nil, a plugin its
// Converter.
func Sets(impl Converter) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{Version: {Name: &grpcPlugin{impl: impl}}}
}

// Serve runs a plugin until its host ends it. It is all that a plugin's main
// has to do.
func Serve(impl Converter) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake,
		VersionedPlugins: Sets(impl),
		Logger:           hclog.NewNullLogger(), // what a plugin would log may hold payload
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return plugin.DefaultGRPCServer(append(opts, grpc.MaxRecvMsgSize(MaxBytes), grpc.MaxSendMsgSize(MaxBytes)))
		},
	})
}

const (
	serviceName = "oduflow.executor.v1.Converter"
	methodName  = "Convert"
)

type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	impl Converter
}

// GRPCServer is called in the plugin.
func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	if p.impl == nil {
		return errors.New("a plugin without a converter")
	}
	s.RegisterService(&service, p.impl)
	return nil
}

// GRPCClient is called in the host.
func (p *grpcPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &client{conn: conn}, nil
}

type client struct{ conn *grpc.ClientConn }

func (c *client) Convert(ctx context.Context, canonical []byte) ([]byte, error) {
	var out wrapperspb.BytesValue
	if err := c.conn.Invoke(ctx, "/"+serviceName+"/"+methodName, wrapperspb.Bytes(canonical), &out); err != nil {
		return nil, err
	}
	return out.GetValue(), nil
}

var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*Converter)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: methodName, Handler: handleConvert}},
}

func handleConvert(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's order
	var in wrapperspb.BytesValue
	if err := dec(&in); err != nil {
		return nil, err
	}
	high, err := srv.(Converter).Convert(ctx, in.GetValue())
	if err != nil {
		// Without the cause: it may quote what it was given.
		return nil, status.Error(codes.InvalidArgument, "refused")
	}
	return wrapperspb.Bytes(high), nil
}

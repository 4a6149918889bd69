package httpapi

import (
	"context"
	"net"
	"strconv"
	"syscall"
)

// peer is who is at the other end of a connection. The kernel vouches for a
// Unix socket's uid; over TLS only a token says anything.
type peer struct {
	unix    bool
	known   bool // uid and pid could be read
	uid     uint32
	pid     int32
	address string
}

type peerKey struct{}

// connContext keeps the peer with every call of its connection.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(conn))
}

func peerOf(conn net.Conn) peer {
	if limited, ok := conn.(*limitedConn); ok {
		conn = limited.Conn
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{address: conn.RemoteAddr().String()}
	}
	p := peer{unix: true}
	raw, err := u.SyscallConn()
	if err != nil {
		return p
	}
	_ = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err == nil {
			p.known, p.uid, p.pid = true, cred.Uid, cred.Pid
		}
	})
	return p
}

func peerFrom(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}

// String is the peer as logs name it.
func (p peer) String() string {
	switch {
	case p.unix && p.known:
		return "uid " + strconv.FormatUint(uint64(p.uid), 10)
	case p.unix:
		return "unix"
	case p.address == "":
		return "unknown"
	}
	return p.address
}

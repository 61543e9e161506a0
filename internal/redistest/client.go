package redistest

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a go-redis client of the server, closed when the test ends. It blocks on nothing: connections are made when
// commands need them.
//
// The client has go-redis' defaults, but for the two that send commands of their own at each new connection: only HELLO is
// left. The opts change what they like, last: [Proxy.Via] sends the client through a proxy.
//
// A client that has failed to connect as many times as its pool has places keeps a goroutine that tries once a second and so
// notices Close up to a second late. Leave such a client its default pool size where leaks are checked.
func (s *Server) Client(opts ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{
		Addr:                     s.Addr(),
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { _ = c.Close() }) // the test may have closed it before
	return c
}

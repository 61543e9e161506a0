package redistest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var _ redis.Hook = (*Counter)(nil)

// Command is a command that a client was asked to send.
type Command struct {
	Name    string // lower case
	Key     string // the first key, or the channel of a publish; empty if there is none
	Args    []any  // the command as it was given, name included
	Request int    // the ordinal of the request, from 1; commands of one pipeline share it
}

// Counter is a go-redis hook that records commands, those in pipelines and transactions included: client.AddHook(&counter).
// The zero value is ready for use, on one client or several, and its methods may be called concurrently.
//
// A command is recorded when it is handed to the client, before it is answered. What go-redis sends again by itself counts
// once: [Server.CommandStats] tells how often the server ran it. Not seen are the HELLO by which each connection begins (see
// Dials) and what is sent around the hooks: subscriptions.
type Counter struct {
	mu       sync.Mutex
	commands []Command
	requests int
	dials    int
}

// Count returns how many commands of that name were recorded, in upper or lower case.
func (c *Counter) Count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, cmd := range c.commands {
		if strings.EqualFold(cmd.Name, name) {
			n++
		}
	}
	return n
}

// Total returns how many commands were recorded.
func (c *Counter) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.commands)
}

// Requests returns in how many requests they were: a pipeline is one, whatever it holds.
func (c *Counter) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Dials returns how many connections were asked for, those that could not be made included.
func (c *Counter) Dials() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// Commands returns the commands recorded so far, in order.
func (c *Counter) Commands() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.commands)
}

// Reset forgets everything recorded.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands, c.requests, c.dials = nil, 0, 0
}

// DialHook is for go-redis.
func (c *Counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.mu.Lock()
		c.dials++
		c.mu.Unlock()
		return next(ctx, network, addr)
	}
}

// ProcessHook is for go-redis.
func (c *Counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" {
			c.record(cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is for go-redis.
func (c *Counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.record(cmds...)
		return next(ctx, cmds)
	}
}

func (c *Counter) record(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	for _, cmd := range cmds {
		args := slices.Clone(cmd.Args())
		c.commands = append(c.commands, Command{Name: cmd.Name(), Key: firstKey(args), Args: args, Request: c.requests})
	}
}

package redistest

import "slices"

// Option changes how a server is started.
type Option func(*settings)

type settings struct {
	args       []string
	persistent bool
}

func newSettings(opts []Option) settings {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// WithArgs adds arguments to the command line, as in WithArgs("--maxmemory", "5mb"). They come last, so they win.
func WithArgs(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// WithPersistence makes the server write every change to disk before it answers, so that the data outlives Kill and Restart.
func WithPersistence() Option {
	return func(s *settings) { s.persistent = true }
}

// commandLine returns the arguments that put s into effect.
func (s settings) commandLine() []string {
	persistence := []string{"--appendonly", "no"}
	if s.persistent {
		persistence = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	return slices.Concat([]string{"--save", ""}, persistence, s.args)
}

# Signals during long runs: Ctrl-C ends a routine that polls.

from cpython.exc cimport PyErr_CheckSignals
from libc.time cimport clock, clock_t, CLOCKS_PER_SEC


cdef struct watch_state:
    void *watch
    clock_t last


cdef class Watch:
    """Calls signal handlers and `progress` during a run, about ten times a second."""

    cdef object progress, error
    cdef double total
    cdef c.pgm_tree_job *job
    cdef watch_state state

    cdef void *begin(self):
        """Return the token of a run that begins now."""
        self.state.watch, self.state.last = <void *> self, clock()
        return &self.state

    cdef int look(self) noexcept:
        try:
            PyErr_CheckSignals()
            if self.progress is not None:
                self.progress(min(1.0, self.job.done / self.total))
        except BaseException as error:
            self.error = error
            return 1
        return 0


cdef int watch(void *token) noexcept nogil:
    cdef watch_state *state = <watch_state *> token
    cdef clock_t now = clock()
    if now - state.last < CLOCKS_PER_SEC // 10:
        return 0
    state.last = now
    with gil:
        return (<Watch> state.watch).look()

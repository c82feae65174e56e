/* Launchers of kernels that call a C function, with no Python between the call and the kernel.

A launcher is an object that a launch list calls with a tensor for each buffer and an int for each symbol. It puts the
addresses of the tensors and the ints into an array and calls an entry. native.py says what an entry is, and how many
arguments are the MOST. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

typedef int (*Entry)(void *state, uint64_t *arguments, int64_t device, uint64_t queue);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Entry entry;
    void *state;
    Py_ssize_t buffers, symbols;
    PyObject *queue;     /* a function from a device's number to the handle of its current queue, or None */
    PyObject *otherwise; /* the launcher in Python */
    PyObject *failed;    /* a function of an entry's error that raises */
    PyObject *owner;     /* what the entry and its state belong to */
} Launcher;

static PyObject *data_ptr, *get_device; /* interned names, made once and never changed */

/* Calls a method of a tensor that takes nothing. */
static PyObject *ask(PyObject *tensor, PyObject *name)
{
    return PyObject_VectorcallMethod(name, &tensor, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* Each of the following returns 0, or -1 with an exception set. */

static int addresses(PyObject *const *tensors, Py_ssize_t count, uint64_t *to)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *address = ask(tensors[i], data_ptr);
        if (address == NULL)
            return -1;
        to[i] = PyLong_AsUnsignedLongLong(address);
        Py_DECREF(address);
        if (to[i] == (uint64_t)-1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int integers(PyObject *const *symbols, Py_ssize_t count, uint64_t *to)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        long long value = PyLong_AsLongLong(symbols[i]);
        if (value == -1 && PyErr_Occurred())
            return -1;
        to[i] = (uint64_t)value;
    }
    return 0;
}

static int place(Launcher *self, PyObject *tensor, int64_t *device, uint64_t *queue)
{
    PyObject *number = ask(tensor, get_device), *handle = NULL;
    if (number != NULL)
        handle = PyObject_CallOneArg(self->queue, number);
    if (handle != NULL) {
        *device = PyLong_AsLongLong(number);
        *queue = PyLong_AsUnsignedLongLong(handle);
    }
    Py_XDECREF(number);
    Py_XDECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *launch(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    Launcher *self = (Launcher *)object;
    uint64_t arguments[MOST], queue = 0;
    int64_t device = -1;
    int code;
    if (PyVectorcall_NARGS(flags) != self->buffers + self->symbols || (names != NULL && PyTuple_GET_SIZE(names) != 0))
        return PyObject_Vectorcall(self->otherwise, args, flags, names);
    if (addresses(args, self->buffers, arguments) < 0)
        return NULL;
    if (integers(args + self->buffers, self->symbols, arguments + self->buffers) < 0)
        return NULL;
    if (self->queue != Py_None && place(self, args[0], &device, &queue) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = self->entry(self->state, arguments, device, queue);
    Py_END_ALLOW_THREADS
    if (code < 0)
        return PyObject_Vectorcall(self->otherwise, args, flags, names);
    if (code > 0)
        return PyObject_CallFunction(self->failed, "i", code);
    Py_RETURN_NONE;
}

static PyObject *new_launcher(PyTypeObject *type, PyObject *args, PyObject *names)
{
    unsigned long long entry, state;
    Py_ssize_t buffers, symbols;
    PyObject *queue, *otherwise, *failed, *owner;
    Launcher *self;
    if (!PyArg_ParseTuple(args, "KKnnOOOO", &entry, &state, &buffers, &symbols, &queue, &otherwise, &failed, &owner))
        return NULL;
    if (buffers < 1 || symbols < 0 || buffers > MOST - symbols)
        return PyErr_Format(PyExc_ValueError, "a launcher takes 1 to %d arguments, a buffer first", MOST);
    self = (Launcher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = launch;
    self->entry = (Entry)(uintptr_t)entry;
    self->state = (void *)(uintptr_t)state;
    self->buffers = buffers;
    self->symbols = symbols;
    self->queue = Py_NewRef(queue);
    self->otherwise = Py_NewRef(otherwise);
    self->failed = Py_NewRef(failed);
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Launcher *self = (Launcher *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->queue);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->failed);
    Py_VISIT(self->owner);
    return 0;
}

static int clear(PyObject *object)
{
    Launcher *self = (Launcher *)object;
    Py_CLEAR(self->queue);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->owner);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_launcher},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_dealloc, dealloc},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "keel.launcher.Launcher",
    .basicsize = sizeof(Launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = slots,
};

/* The type of launchers. It is called with the integers entry, state, buffers and symbols, and four objects. */
PyObject *keel_launcher_type(void)
{
    if ((data_ptr = PyUnicode_InternFromString("data_ptr")) == NULL)
        return NULL;
    if ((get_device = PyUnicode_InternFromString("get_device")) == NULL)
        return NULL;
    return PyType_FromSpec(&spec);
}

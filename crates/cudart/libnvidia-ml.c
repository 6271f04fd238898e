/* libnvidia-ml.so.1: what programs ask of NVML before they use CUDA: how many devices there are,
   which they are, and what connects them. PyTorch's expandable segments call it without a look
   whether it is there. Other names of NVML are absent.

   It reads the environment as the runtime does (docs/drop-in.md), and needs no machine: a program
   may fork after it has asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7 };

/* A device's handle: its number, from 1. */
typedef struct device *handle;

static int number(const char *variable, int otherwise) {
  const char *value = getenv(variable);
  return value ? atoi(value) : otherwise;
}

static int devices(void) { return number("PINLANE_CUDART_DEVICES", 1); }

static int give(int index, handle *device) {
  if (!device || index < 0 || index >= devices()) return INVALID_ARGUMENT;
  *device = (handle)(size_t)(index + 1);
  return SUCCESS;
}

static int ordinal(handle device) {
  const size_t number = (size_t)device;
  return number && number <= (size_t)devices() ? (int)number - 1 : -1;
}

static int text(char *out, unsigned room, const char *value) {
  if (!out) return INVALID_ARGUMENT;
  if (strlen(value) >= room) return SMALL;
  strcpy(out, value);
  return SUCCESS;
}

/* 16 times the byte that tells devices apart (properties.rs). */
static void write_uuid(char *out, int index) {
  static const int parts[] = {4, 2, 2, 2, 6};
  out += sprintf(out, "GPU");
  for (int part = 0; part < 5; ++part) {
    *out++ = '-';
    for (int byte = 0; byte < parts[part]; ++byte) out += sprintf(out, "%02x", index + 1);
  }
}

int nvmlInit(void) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case SMALL: return "Insufficient Size";
    default: return "Unknown Error";
  }
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  if (!version) return INVALID_ARGUMENT;
  *version = number("PINLANE_CUDART_DRIVER", 13000);
  return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  if (!count) return INVALID_ARGUMENT;
  *count = (unsigned)devices();
  return SUCCESS;
}

int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
  return give((int)index, device);
}

int nvmlDeviceGetHandleByIndex(unsigned index, handle *device) {
  return give((int)index, device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, handle *device) {
  unsigned domain, bus, slot;
  if (!id || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) return INVALID_ARGUMENT;
  if (domain || slot || !bus || bus > (unsigned)devices()) return NOT_FOUND;
  return give((int)bus - 1, device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
  char known[64];
  if (!uuid) return INVALID_ARGUMENT;
  for (int index = 0; index < devices(); ++index) {
    write_uuid(known, index);
    if (!strcmp(known, uuid)) return give(index, device);
  }
  return NOT_FOUND;
}

int nvmlDeviceGetIndex(handle device, unsigned *index) {
  if (!index || ordinal(device) < 0) return INVALID_ARGUMENT;
  *index = (unsigned)ordinal(device);
  return SUCCESS;
}

int nvmlDeviceGetUUID(handle device, char *uuid, unsigned room) {
  char known[64];
  if (ordinal(device) < 0) return INVALID_ARGUMENT;
  write_uuid(known, ordinal(device));
  return text(uuid, room, known);
}

int nvmlDeviceGetName(handle device, char *name, unsigned room) {
  char known[64];
  if (ordinal(device) < 0) return INVALID_ARGUMENT;
  snprintf(known, sizeof known, "Emulated device %d", ordinal(device));
  return text(name, room, known);
}

int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
  if (ordinal(device) < 0 || !major || !minor) return INVALID_ARGUMENT;
  *major = 9;
  *minor = 0;
  return SUCCESS;
}

/* No process is known to use a device. */
int nvmlDeviceGetComputeRunningProcesses(handle device, unsigned *count, void *all) {
  (void)all;
  if (ordinal(device) < 0 || !count) return INVALID_ARGUMENT;
  *count = 0;
  return SUCCESS;
}

/* Nothing but the host connects devices. */
int nvmlDeviceGetNvLinkRemoteDeviceType(handle device, unsigned link, int *type) {
  (void)link, (void)type;
  return ordinal(device) < 0 ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, unsigned link, void *pci) {
  (void)link, (void)pci;
  return ordinal(device) < 0 ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

/* Its version, a cluster, a status, a clique, a state, and a mask. */
struct fabric {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};

int nvmlDeviceGetGpuFabricInfoV(handle device, struct fabric *info) {
  if (ordinal(device) < 0 || !info) return INVALID_ARGUMENT;
  info->status = SUCCESS;
  info->state = 0; /* There is none. */
  return SUCCESS;
}

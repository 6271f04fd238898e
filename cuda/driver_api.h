/* What src/driver/cuda uses of the CUDA driver API, for build/driver_api.rs.
 *
 * A type of cudaTypedefs.h has the signature of a function as it was in that version of CUDA. The
 * driver keeps all versions, so every toolkit declares the same for it. */
#include <cudaTypedefs.h>
#include <stddef.h>

/* From 13.2 on, `id` is in a union of its own. The declaration in Rust has it directly. */
_Static_assert(sizeof(CUmemLocation) == 8 && offsetof(CUmemLocation, id) == 4, "its layout");

/* Versions differ in the values of an attribute. In Rust only the priority is declared. */
_Static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value.priority) == 8,
               "its layout");
_Static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, blockDimX) == 12 &&
                   offsetof(CUlaunchConfig, sharedMemBytes) == 24 &&
                   offsetof(CUlaunchConfig, hStream) == 32 &&
                   offsetof(CUlaunchConfig, attrs) == 40 &&
                   offsetof(CUlaunchConfig, numAttrs) == 48,
               "its layout");

static const unsigned int STREAM_DEFAULT = CU_STREAM_DEFAULT;
static const unsigned int STREAM_NON_BLOCKING = CU_STREAM_NON_BLOCKING;
static const unsigned int EVENT_DEFAULT = CU_EVENT_DEFAULT;
static const unsigned int EVENT_DISABLE_TIMING = CU_EVENT_DISABLE_TIMING;
static const unsigned int EVENT_WAIT_DEFAULT = CU_EVENT_WAIT_DEFAULT;
static const unsigned int HOST_ALLOC_PORTABLE = CU_MEMHOSTALLOC_PORTABLE;
static const unsigned int HOST_ALLOC_MAPPED = CU_MEMHOSTALLOC_DEVICEMAP;
static const unsigned int HOST_ALLOC_WRITE_COMBINED = CU_MEMHOSTALLOC_WRITECOMBINED;
static const unsigned int HOST_REGISTER_PORTABLE = CU_MEMHOSTREGISTER_PORTABLE;
static const unsigned int HOST_REGISTER_MAPPED = CU_MEMHOSTREGISTER_DEVICEMAP;
static const unsigned int HOST_REGISTER_READ_ONLY = CU_MEMHOSTREGISTER_READ_ONLY;
static const unsigned int CAPTURE_RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
static const unsigned int CAPTURE_NONE = CU_STREAM_CAPTURE_STATUS_NONE;
static const unsigned int CAPTURE_ACTIVE = CU_STREAM_CAPTURE_STATUS_ACTIVE;
static const unsigned int CAPTURE_INVALIDATED = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
static const unsigned int MEMORY_HOST = CU_MEMORYTYPE_HOST;
static const unsigned int MEMORY_DEVICE = CU_MEMORYTYPE_DEVICE;
static const unsigned int LOCATION_INVALID = CU_MEM_LOCATION_TYPE_INVALID;
static const unsigned int LOCATION_DEVICE = CU_MEM_LOCATION_TYPE_DEVICE;
static const unsigned int ACCESS_READ_WRITE = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
static const unsigned int SOURCE_IN_STREAM_ORDER = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
static const unsigned int LAUNCH_PRIORITY = CU_LAUNCH_ATTRIBUTE_PRIORITY;
static const unsigned int LEGACY_STREAM = CU_GET_PROC_ADDRESS_LEGACY_STREAM;

static const unsigned int MEMORY_POOLS_SUPPORTED = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
static const unsigned int UNIFIED_ADDRESSING = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
static const unsigned int HOST_POINTER_FOR_REGISTERED =
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
static const unsigned int READ_ONLY_REGISTRATION =
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
static const unsigned int ASYNC_ENGINE_COUNT = CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT;
static const unsigned int MAX_PITCH = CU_DEVICE_ATTRIBUTE_MAX_PITCH;
static const unsigned int PCI_DOMAIN_ID = CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID;
static const unsigned int PCI_BUS_ID = CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
static const unsigned int PCI_DEVICE_ID = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID;

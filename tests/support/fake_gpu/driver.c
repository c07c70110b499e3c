// Stands for libcuda.so.1 where there is no driver: as many GPUs as FAKE_GPUS says, each with an
// identity of its own; FAKE_DRIVER_ERROR makes it fail as a driver does that finds no device.
#include <stdlib.h>

static int number(const char* variable) {
  const char* text = getenv(variable);
  return text == NULL ? 0 : atoi(text);
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_DRIVER_ERROR");
}

int cuDeviceGetCount(int* count) {
  *count = number("FAKE_GPUS");
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) {
    uuid[i] = (unsigned char)(device + 1);
  }
  return 0;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == 100 ? "no CUDA-capable device is detected" : "another error";
  return 0;
}

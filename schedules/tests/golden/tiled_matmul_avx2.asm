stage 0:
     0  push rbx
     1  push rbp
     2  push r12
     4  push r13
     6  push r14
     8  push r15
     a  add rsp, 0FFFFFFFFFFFFFF98h
     e  mov [rsp+10h], rdx
    13  mov [rsp+18h], rcx
    18  mov rax, [rdi]
    1c  mov [rsp+20h], rax
    21  mov rax, [rdi+8]
    25  mov [rsp+28h], rax
    2a  mov rax, [rdi+10h]
    2e  mov [rsp+30h], rax
    33  mov rax, [rdi+18h]
    37  mov [rsp+38h], rax
    3c  mov rax, [rdi+20h]
    40  mov [rsp+40h], rax
    45  mov rax, [rsp+10h]
    4a  mov rcx, 0
    51  cmp rax, rcx
    54  cmovl rax, rcx
    58  mov [rsp], rax
    5d  mov rax, [rsp+18h]
    62  mov rcx, 1
    69  cmp rax, rcx
    6c  cmovg rax, rcx
    70  mov [rsp+8], rax
    75  jmp 0C5h
    7a  mov rax, [rsp]
    7f  xor edx, edx
    81  mov rcx, 1
    88  div rcx
    8b  mov [rsp+50h], rdx
    90  mov rdi, [rsp+28h]
    95  imul rax, [rsp+50h], 2Ch
    9e  add rdi, rax
    a1  mov rsi, [rsp+40h]
    a6  imul rax, [rsp+50h], 84h
    af  add rsi, rax
    b2  call 20Dh
    b7  mov rax, [rsp]
    bc  add rax, 1
    c0  mov [rsp], rax
    c5  mov rax, [rsp]
    ca  cmp rax, [rsp+8]
    cf  jl near 7Ah
    d5  add rsp, 68h
    d9  pop r15
    db  pop r14
    dd  pop r13
    df  pop r12
    e1  pop rbp
    e2  pop rbx
    e3  vzeroupper
    e6  ret
stage 1:
    e7  push rbx
    e8  push rbp
    e9  push r12
    eb  push r13
    ed  push r14
    ef  push r15
    f1  add rsp, 0FFFFFFFFFFFFFF88h
    f5  mov [rsp+10h], rdx
    fa  mov [rsp+18h], rcx
    ff  mov rax, [rdi]
   103  mov [rsp+20h], rax
   108  mov rax, [rdi+8]
   10c  mov [rsp+28h], rax
   111  mov rax, [rdi+10h]
   115  mov [rsp+30h], rax
   11a  mov rax, [rdi+18h]
   11e  mov [rsp+38h], rax
   123  mov rax, [rdi+20h]
   127  mov [rsp+40h], rax
   12c  mov rax, [rsp+10h]
   131  mov rcx, 0
   138  cmp rax, rcx
   13b  cmovl rax, rcx
   13f  mov [rsp], rax
   144  mov rax, [rsp+18h]
   149  mov rcx, 1
   150  cmp rax, rcx
   153  cmovg rax, rcx
   157  mov [rsp+8], rax
   15c  jmp 1EBh
   161  mov rax, [rsp]
   166  xor edx, edx
   168  mov rcx, 1
   16f  div rcx
   172  mov [rsp+58h], rdx
   177  xor edx, edx
   179  mov rcx, 1
   180  div rcx
   183  mov [rsp+50h], rdx
   188  mov rdi, [rsp+20h]
   18d  imul rax, [rsp+58h], 18h
   196  add rdi, rax
   199  mov rsi, [rsp+40h]
   19e  imul rax, [rsp+50h], 84h
   1a7  add rsi, rax
   1aa  mov rdx, [rsp+30h]
   1af  imul rax, [rsp+50h], 2Ch
   1b8  add rdx, rax
   1bb  mov rcx, [rsp+38h]
   1c0  imul rax, [rsp+58h], 58h
   1c9  add rcx, rax
   1cc  imul rax, [rsp+50h], 2Ch
   1d5  add rcx, rax
   1d8  call 25Ah
   1dd  mov rax, [rsp]
   1e2  add rax, 1
   1e6  mov [rsp], rax
   1eb  mov rax, [rsp]
   1f0  cmp rax, [rsp+8]
   1f5  jl near 161h
   1fb  add rsp, 78h
   1ff  pop r15
   201  pop r14
   203  pop r13
   205  pop r12
   207  pop rbp
   208  pop rbx
   209  vzeroupper
   20c  ret
   20d  mov rdx, 3
   214  vmovups ymm0, [rdi]
   219  vmovups [rsi], ymm0
   21e  vmovups ymm0, [rel 354h]
   226  vmaskmovps ymm0, ymm0, [rdi+20h]
   22c  vmovups ymm1, [rel 354h]
   234  vmaskmovps [rsi+20h], ymm1, ymm0
   23a  add rdi, 2Ch
   23e  add rsi, 2Ch
   242  dec rdx
   245  jne near 214h
   24b  add rdi, 0FFFFFFFFFFFFFF7Ch
   252  add rsi, 0FFFFFFFFFFFFFF7Ch
   259  ret
   25a  vxorps ymm0, ymm0, ymm0
   25e  vxorps ymm1, ymm1, ymm1
   262  vxorps ymm2, ymm2, ymm2
   266  vxorps ymm3, ymm3, ymm3
   26a  mov r8, 3
   271  vbroadcastss ymm4, [rdi]
   277  vmovups ymm5, [rsi]
   27c  vfmadd231ps ymm0, ymm4, ymm5
   281  vbroadcastss ymm6, [rdi+0Ch]
   287  vfmadd231ps ymm2, ymm6, ymm5
   28c  vmovups ymm5, [rel 354h]
   294  vmaskmovps ymm5, ymm5, [rsi+20h]
   29a  vfmadd231ps ymm1, ymm4, ymm5
   29f  vfmadd231ps ymm3, ymm6, ymm5
   2a4  prefetcht0 [rsi+84h]
   2ab  add rdi, 4
   2af  add rsi, 2Ch
   2b3  dec r8
   2b6  jne near 271h
   2bc  add rdi, 0FFFFFFFFFFFFFFF4h
   2c0  add rsi, 0FFFFFFFFFFFFFF7Ch
   2c7  vxorps ymm4, ymm4, ymm4
   2cb  vmovups ymm5, [rdx]
   2d0  vaddps ymm6, ymm0, ymm5
   2d4  vmaxps ymm6, ymm4, ymm6
   2d8  vmovups [rcx], ymm6
   2dd  vmovups ymm6, [rel 354h]
   2e5  vmaskmovps ymm6, ymm6, [rdx+20h]
   2eb  vaddps ymm7, ymm1, ymm6
   2ef  vmaxps ymm7, ymm4, ymm7
   2f3  vmovups ymm8, [rel 354h]
   2fb  vmaskmovps [rcx+20h], ymm8, ymm7
   301  vaddps ymm5, ymm2, ymm5
   305  vmaxps ymm5, ymm4, ymm5
   309  vmovups [rcx+2Ch], ymm5
   30e  vaddps ymm5, ymm3, ymm6
   312  vmaxps ymm4, ymm4, ymm5
   316  vmovups ymm5, [rel 354h]
   31e  vmaskmovps [rcx+4Ch], ymm5, ymm4
   324  ret
